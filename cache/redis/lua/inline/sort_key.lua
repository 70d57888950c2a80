-- Sets x to the user's sort key, or to '' if the user is not in the ladder. h is the user's hash.
x = ''
do
  local bucket
  --include inline/bucket
  local record = call('HGET', live .. format(':u%d', bucket), user)
  local from = record and byte(record, 1) + 2
  local to = record and from + kb + TIME - 1
  if record and #record >= to then
    local found, i = number == '0', to + 1
    while not found and i <= #record do
      local a, b, c = byte(record, i, i + 2)
      found, i = format('%d', a * 65536 + b * 256 + c) == number, i + LADDER
    end
    if found then x = sub(record, from, to) .. user end
  end
end
