package config

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/open-leaderboard/leaderboard/internal/secret"
)

// Archive contains the settings of the archive of sealed seasons.
type Archive struct {
	To       secret.Text   `key:"to" unit:"postgres://USER@HOST/DATABASE or parquet:DIR" help:"Archive into which servers with the role api copy each sealed season, and its later changes. If empty, only the command archive does so."`
	Password secret.Text   `key:"password" unit:"text" help:"Password of the database in archive.to."`
	Every    time.Duration `key:"every" unit:"duration" help:"How often to look for seasons to archive, at least 1s. A server also looks after each of its own seals."`
}

const minArchiveEvery = time.Second

func (a *Archive) validate(v *validator) {
	if err := CheckArchive(string(a.To)); err != nil && a.To != "" {
		v.errorf("archive.to", "%s", err)
	}
	if a.Every < minArchiveEvery {
		v.errorf("archive.every", "%v is less than %v", a.Every, minArchiveEvery)
	}
}

// ParquetPrefix begins the name of an archive in a folder.
const ParquetPrefix = "parquet:"

// CheckArchive returns an error if a text does not name an archive. The error does not quote the text, which may have a
// password.
func CheckArchive(to string) error {
	if dir, ok := strings.CutPrefix(to, ParquetPrefix); ok {
		if dir == "" || strings.ContainsRune(dir, 0) {
			return errors.New("names no folder; give parquet:DIR")
		}
		return nil
	}
	u, err := url.Parse(to)
	switch {
	case err != nil:
		return errors.New("is not a URL; give postgres://USER@HOST/DATABASE, with special characters percent-encoded, or parquet:DIR")
	case u.Scheme != "postgres" && u.Scheme != "postgresql":
		return errors.New("is neither a URL that begins with postgres:// nor parquet:DIR")
	case strings.Trim(u.Path, "/") == "":
		return errors.New("names no database; give postgres://USER@HOST/DATABASE")
	}
	return nil
}
