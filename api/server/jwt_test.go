package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/open-leaderboard/leaderboard/api/auth"
	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/internal/secret"
)

var tokenNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func sign(t testing.TB, key []byte, modify func(map[string]any)) string {
	t.Helper()
	claims := map[string]any{"iss": "https://id.example", "aud": "leaderboard", "sub": "player-7", "exp": tokenNow.Add(time.Hour).Unix(), "nbf": tokenNow.Add(-time.Hour).Unix()}
	if modify != nil {
		modify(claims)
	}
	token := jwt.New()
	for k, v := range claims {
		if v == nil {
			continue
		}
		if err := token.Set(k, v); err != nil {
			t.Fatal(err)
		}
	}
	signed, err := jwt.Sign(token, jwt.WithKey(jwa.HS256(), key))
	if err != nil {
		t.Fatal(err)
	}
	return string(signed)
}

func TestJWTClaims(t *testing.T) {
	key := []byte(strings.Repeat("s", 32))
	o := auth.JWT{Algorithm: "HS256", Secret: secret.Text(key), Issuer: "https://id.example", Audience: "leaderboard"}
	h := newHarness(t, Options{JWT: o, Now: func() time.Time { return tokenNow }})
	set := func(k string, v any) func(map[string]any) { return func(c map[string]any) { c[k] = v } }
	for _, tt := range []struct {
		name         string
		modify       func(map[string]any)
		read, submit int
	}{
		{"no scope", nil, 200, 403},
		{"scope read", set("scope", "openid read"), 200, 403},
		{"scope submit", set("scope", "submit"), 200, 200},
		{"scope admin in a list", set("scopes", []string{"x", "admin"}), 200, 200},
		{"scope with a prefix", set("scope", "leaderboard:submit"), 200, 200},
		{"scope of another service", set("scope", "email"), 403, 403},
		{"an empty scope", set("scope", ""), 403, 403},
		{"scope that is a number", set("scope", 7), 403, 403},
		{"unknown scopes similar to known ones", set("scope", "admins Submit"), 403, 403},
		{"an expired token", set("exp", tokenNow.Add(-time.Minute).Unix()), 401, 401},
		{"a token that expired within the leeway", set("exp", tokenNow.Add(-10*time.Second).Unix()), 200, 403},
		{"no expiry", set("exp", nil), 401, 401},
		{"a token that is not valid yet", set("nbf", tokenNow.Add(time.Minute).Unix()), 401, 401},
		{"another issuer", set("iss", "https://evil.example"), 401, 401},
		{"no issuer", set("iss", nil), 401, 401},
		{"another audience", set("aud", "shop"), 401, 401},
		{"one of the audiences", set("aud", []string{"shop", "leaderboard"}), 200, 403},
		{"no audience", set("aud", nil), 401, 401},
		{"no subject", set("sub", nil), 401, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := h.withT(t)
			h.keys["token"] = sign(t, key, tt.modify)
			if a := h.do("token", "GET", "/v1/scores", nil); a.status != tt.read {
				t.Errorf("GET /v1/scores: %d %s, want %d", a.status, a.raw, tt.read)
			}
			if a := h.do("token", "POST", "/v1/scores", `{"user_id":"u","points":1}`); a.status != tt.submit {
				t.Errorf("POST /v1/scores: %d %s, want %d", a.status, a.raw, tt.submit)
			}
		})
	}
	good := sign(t, key, nil)
	parts := strings.Split(good, ".")
	b64 := base64.RawURLEncoding.EncodeToString
	admin := b64([]byte(fmt.Sprintf(`{"iss":"https://id.example","aud":"leaderboard","sub":"x","scope":"admin","exp":%d}`, tokenNow.Add(time.Hour).Unix())))
	for _, token := range []string{
		b64([]byte(`{"alg":"none"}`)) + "." + admin + ".",
		b64([]byte(`{"alg":"None","typ":"JWT"}`)) + "." + admin + ".",
		parts[0] + "." + admin + "." + parts[2],
		parts[0] + "." + parts[1] + ".", parts[0] + ".." + parts[2], "eyJ..", good + "x", "eyJhbGciOiJIUzI1NiJ9.e30.x",
	} {
		h.keys["token"] = token
		if a := h.do("token", "GET", "/v1/scores", nil); a.status != http.StatusUnauthorized {
			t.Errorf("token %s: %d %s, want 401", token, a.status, a.raw)
		}
	}
	if a := h.do("read", "GET", "/v1/scores", nil); a.status != http.StatusOK {
		t.Errorf("call with an API key: %d %s, want 200", a.status, a.raw)
	}
}

func TestTokenFormsOverREST(t *testing.T) {
	key := []byte(strings.Repeat("s", 32))
	o := auth.JWT{Algorithm: "HS256", Secret: secret.Text(key), Issuer: "https://id.example", Audience: "leaderboard", MaxLifetime: 24 * time.Hour}
	h := newHarness(t, Options{JWT: o, Now: func() time.Time { return tokenNow }})
	claims := func(rest string) string {
		return `{"iss":"https://id.example","aud":"leaderboard","sub":"u"` + rest + `}`
	}
	unix := func(d time.Duration) string { return fmt.Sprint(tokenNow.Add(d).Unix()) }
	const header = `{"alg":"HS256","typ":"JWT"}`
	good := claims(`,"exp":` + unix(time.Hour))
	for _, tt := range []struct {
		name, header, claims string
		want                 int
	}{
		{"a good token", header, good, 200},
		{"unknown critical extensions", `{"alg":"HS256","crit":["b64"],"b64":true}`, good, 401},
		{"an empty list of critical extensions", `{"alg":"HS256","crit":[]}`, good, 401},
		{"bytes after the claims", header, good + "{}", 401},
		{"exp as a text", header, claims(`,"exp":"` + unix(time.Hour) + `"`), 401},
		{"exp that is null", header, claims(`,"exp":null`), 401},
		{"iat as a text", header, claims(`,"iat":"1","exp":` + unix(time.Hour)), 401},
		{"just within the maximum lifetime", header, claims(`,"iat":` + unix(-time.Hour) + `,"exp":` + unix(23*time.Hour)), 200},
		{"a longer lifetime since iat", header, claims(`,"iat":` + unix(-24*time.Hour) + `,"exp":` + unix(time.Hour)), 401},
		{"a longer lifetime from now", header, claims(`,"exp":` + unix(25*time.Hour)), 401},
	} {
		b64 := base64.RawURLEncoding.EncodeToString
		token := b64([]byte(tt.header)) + "." + b64([]byte(tt.claims))
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(token))
		h.keys["token"] = token + "." + b64(mac.Sum(nil))
		if a := h.do("token", "GET", "/v1/scores", nil); a.status != tt.want {
			t.Errorf("%s: %d %s, want %d", tt.name, a.status, a.raw, tt.want)
		}
	}
}

func TestKeysForEncryptionVerifyNoToken(t *testing.T) {
	key := mustEC(t)
	signed, err := jws.Sign([]byte(`{"iss":"https://id.example","aud":"leaderboard","sub":"u","exp":`+fmt.Sprint(tokenNow.Add(time.Hour).Unix())+`}`), jws.WithKey(jwa.ES256(), key))
	if err != nil {
		t.Fatal(err)
	}
	for use, want := range map[string]int{"sig": 200, "enc": 401} {
		public, err := jwk.Import(&key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if err := public.Set(jwk.KeyUsageKey, use); err != nil {
			t.Fatal(err)
		}
		set, err := json.Marshal(map[string]any{"keys": []any{public}})
		if err != nil {
			t.Fatal(err)
		}
		o := auth.JWT{Algorithm: "ES256", JWKS: writeFile(t, "set.json", set), Issuer: "https://id.example", Audience: "leaderboard"}
		h := newHarness(t, Options{JWT: o, Now: func() time.Time { return tokenNow }})
		h.keys["token"] = string(signed)
		if a := h.do("token", "GET", "/v1/scores", nil); a.status != want {
			t.Errorf("a token whose key has the use %q: %d %s, want %d", use, a.status, a.raw, want)
		}
	}
}

func TestTokensAreBoundToBoards(t *testing.T) {
	key := []byte(strings.Repeat("s", 32))
	o := auth.JWT{Algorithm: "HS256", Secret: secret.Text(key), Issuer: "https://id.example", Audience: "leaderboard"}
	h := newHarness(t, Options{JWT: o, Now: func() time.Time { return tokenNow }})
	for _, id := range []string{"cup", "cup2", "eu-1"} {
		h.createBoard(fmt.Sprintf(`{"board_id":%q,"policy":"SUM"}`, id))
	}
	type claims map[string]any
	for _, tt := range []struct {
		name                              string
		claims                            claims
		cup, cup2, eu, defaultBoard, list int // list is -1 if unchecked
	}{
		{"no claim", claims{}, 200, 200, 200, 200, 4},
		{"a board", claims{"boards": []string{"cup"}}, 200, 403, 403, 403, 1},
		{"a prefix", claims{"board_prefixes": []string{"eu-"}}, 403, 403, 200, 403, 1},
		{"a board and a prefix", claims{"boards": []string{"cup2"}, "board_prefixes": []string{"eu-"}}, 403, 200, 200, 403, 2},
		{"a board and an empty list of prefixes", claims{"boards": []string{"cup"}, "board_prefixes": []string{}}, 200, 403, 403, 403, 1},
		{"a board that does not exist", claims{"boards": []string{"nowhere"}}, 403, 403, 403, 403, 0},
		{"an empty list", claims{"boards": []string{}}, 401, 401, 401, 401, -1},
		{"a text instead of a list", claims{"boards": "cup"}, 401, 401, 401, 401, -1},
		{"a number in the list", claims{"boards": []any{"cup", 7}}, 401, 401, 401, 401, -1},
		{"an object instead of a list", claims{"board_prefixes": map[string]string{"cup": "cup"}}, 401, 401, 401, 401, -1},
		{"an empty prefix", claims{"board_prefixes": []string{""}}, 401, 401, 401, 401, -1},
		{"too many boards", claims{"boards": slices.Repeat([]string{"cup"}, 101)}, 401, 401, 401, 401, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := h.withT(t)
			h.keys["token"] = sign(t, key, func(c map[string]any) {
				c["scope"] = "admin"
				maps.Copy(c, tt.claims)
			})
			for board, want := range map[string]int{"cup": tt.cup, "cup2": tt.cup2, "eu-1": tt.eu, "default": tt.defaultBoard} {
				a := h.do("token", "POST", "/v1/boards/"+board+"/scores", `{"user_id":"u","points":1}`)
				if a.status != want || want == 403 && a.reason() != "BOARD_DENIED" {
					t.Errorf("submit to board %s: %d %s, want %d", board, a.status, a.raw, want)
				}
				code := map[int]codes.Code{200: codes.OK, 401: codes.Unauthenticated, 403: codes.PermissionDenied}[want]
				if _, err := h.client().ListScores(h.as("token"), &pb.ListScoresRequest{Board: board}); status.Code(err) != code {
					t.Errorf("ListScores of board %s over gRPC: %v, want %v", board, err, code)
				}
			}
			boards, _ := h.do("token", "GET", "/v1/boards", nil).body["boards"].([]any)
			if tt.list >= 0 && len(boards) != tt.list {
				t.Errorf("GET /v1/boards lists %d boards, want %d", len(boards), tt.list)
			}
			if a := h.do("token", "GET", "/v1/keys", nil); len(tt.claims) > 0 && a.status != 401 && a.status != 403 {
				t.Errorf("GET /v1/keys: %d %s, want 401 or 403", a.status, a.raw)
			}
		})
	}
	h.keys["token"] = signJSON(t, key, fmt.Sprintf(`{"iss":"https://id.example","aud":"leaderboard","sub":"x","boards":null,"exp":%d}`, tokenNow.Add(time.Hour).Unix()))
	if a := h.do("token", "GET", "/v1/boards/cup/scores", nil); a.status != http.StatusUnauthorized {
		t.Errorf("a token with the claim boards null: %d %s, want 401", a.status, a.raw)
	}
}

func signJSON(t testing.TB, key []byte, claims string) string {
	t.Helper()
	signed, err := jws.Sign([]byte(claims), jws.WithKey(jwa.HS256(), key))
	if err != nil {
		t.Fatal(err)
	}
	return string(signed)
}
