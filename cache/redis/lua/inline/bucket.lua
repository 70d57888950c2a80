-- Sets bucket to the number of the bucket that holds a user with the hash h, in a generation with buckets
-- buckets. The number of buckets grows by one at a time. Each new bucket takes users of only one other
-- bucket.
do
  local m = 1
  while m < buckets do m = m + m end
  bucket = h % m
  if bucket >= buckets then bucket = bucket - m / 2 end
end
