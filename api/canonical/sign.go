package canonical

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// headers returns the headers that sign a request, or none without keys. The signed content is the path
// of the result below the address of the store, because requests over HTTP have no body.
func (c *Client) headers(k Key) map[string]string {
	if len(c.keys) == 0 {
		return nil
	}
	return sign(c.keys, "fetch_"+rand.Text(), k.path(), time.Now())
}

// sign returns the headers of [Standard Webhooks] with a signature of each key.
//
// [Standard Webhooks]: https://www.standardwebhooks.com
func sign(keys [][]byte, id, content string, at time.Time) map[string]string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + seconds + "." + content))
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return map[string]string{"webhook-id": id, "webhook-timestamp": seconds, "webhook-signature": strings.Join(signatures, " ")}
}
