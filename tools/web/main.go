// Command web builds the pages of the server from their TypeScript sources, with esbuild:
//
//	web SOURCES OUT
//
// It writes the pages, their scripts, texts and the licenses of their libraries into the folder OUT.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

func run(sources, out string) error {
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	if err := bundle(sources, out); err != nil {
		return err
	}
	return errors.Join(copyTexts(sources, out), copyPages(sources, out))
}

// bundle writes the scripts, and the licenses of the libraries in them.
func bundle(sources, out string) error {
	sources, err := filepath.Abs(sources)
	if err != nil {
		return err
	}
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: sources, Outdir: filepath.Join(sources, "out"), Metafile: true, Bundle: true,
		EntryPoints:      []string{"src/page.ts", "src/admin/admin.ts", "src/embed.ts", "src/frame.ts", "src/gallery.ts"},
		NodePaths:        []string{filepath.Join(sources, "lib")},
		Format:           api.FormatESModule,
		Target:           api.ES2022,
		Charset:          api.CharsetUTF8,
		LegalComments:    api.LegalCommentsNone, // licenses.txt has the licenses
		MinifyWhitespace: true, MinifySyntax: true, MinifyIdentifiers: true,
		TsconfigRaw: `{"compilerOptions": {"strict": true, "useDefineForClassFields": false}}`,
		Plugins:     []api.Plugin{{Name: "css", Setup: minifyCSS}},
	})
	for _, m := range slices.Concat(result.Errors, result.Warnings) {
		err = errors.Join(err, fmt.Errorf("%+v: %s", m.Location, m.Text))
	}
	if err != nil {
		return err
	}
	for _, file := range result.OutputFiles {
		if err := os.WriteFile(filepath.Join(out, filepath.Base(file.Path)), file.Contents, 0o644); err != nil {
			return err
		}
	}
	return writeLicenses(sources, out, result.Metafile)
}

// minifyCSS makes the styles of a .css file importable as a text.
func minifyCSS(build api.PluginBuild) {
	build.OnLoad(api.OnLoadOptions{Filter: `\.css$`}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
		data, err := os.ReadFile(args.Path)
		if err != nil {
			return api.OnLoadResult{}, err
		}
		result := api.Transform(string(data), api.TransformOptions{Loader: api.LoaderCSS, MinifyWhitespace: true, MinifySyntax: true, Target: api.ES2022, Charset: api.CharsetUTF8})
		if len(result.Errors) > 0 {
			return api.OnLoadResult{}, fmt.Errorf("%s: %s", args.Path, result.Errors[0].Text)
		}
		text := strings.TrimSpace(string(result.Code))
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderText}, nil
	})
}

func writeLicenses(sources, out, metafile string) error {
	var meta struct {
		Inputs map[string]struct{}
	}
	if err := json.Unmarshal([]byte(metafile), &meta); err != nil {
		return err
	}
	packages := map[string]bool{}
	for input := range meta.Inputs {
		if name, found := strings.CutPrefix(input, "lib/"); found {
			parts := strings.Split(name, "/")
			n := 1
			if strings.HasPrefix(name, "@") {
				n = 2
			}
			packages[strings.Join(parts[:n], "/")] = true
		}
	}
	var names []string
	for name := range packages {
		names = append(names, name)
	}
	slices.Sort(names)
	var text bytes.Buffer
	for _, name := range names {
		license, err := os.ReadFile(filepath.Join(sources, "lib", name, "LICENSE"))
		if err != nil {
			return err
		}
		var manifest struct{ Version string }
		data, err := os.ReadFile(filepath.Join(sources, "lib", name, "package.json"))
		if err := errors.Join(err, json.Unmarshal(data, &manifest)); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s %s\n\n%s\n\n", name, manifest.Version, bytes.TrimSpace(license))
	}
	return os.WriteFile(filepath.Join(out, "licenses.txt"), text.Bytes(), 0o644)
}

func copyTexts(sources, out string) error {
	texts := filepath.Join(sources, "text")
	return filepath.WalkDir(texts, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(texts, file)
		if err != nil {
			return err
		}
		copied := filepath.Join(out, "text", name)
		if d.IsDir() {
			return os.MkdirAll(copied, 0o755)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return os.WriteFile(copied, compact.Bytes(), 0o644)
	})
}

func copyPages(sources, out string) error {
	files, err := filepath.Glob(filepath.Join(sources, "html", "*"))
	for _, file := range files {
		data, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(out, filepath.Base(file)), data, 0o644))
	}
	return err
}
