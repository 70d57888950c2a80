-- Sets x to the user's sort key, or to '' if the user is not in the ladder. h is the user's hash.
x = ''
do
  local bucket
  --include inline/bucket
  local record = call('HGET', live .. format(':u%d', bucket), user)
  local from = record and byte(record, 1) + 2
  local to = record and from + kb + TIME - 1
  if record and #record >= to then
    local found = number == '0'
    for i = to + 1, #record, LADDER do
      if found then break end
      local a, b, c = byte(record, i, i + 2)
      found = format('%d', a * 65536 + b * 256 + c) == number
    end
    if found then x = sub(record, from, to) .. user end
  end
end
