// Package modules packs the modules of the Go client as `go get` downloads them.
package modules

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

var moduleLine = regexp.MustCompile(`(?m)^module (\S+)$`)

// Pack writes each module of the client in a folder into a folder that is a module proxy (GOPROXY=file://...). Each has
// the licence, as Go adds the repository's to a module by itself. The same files give the same bytes.
func Pack(proxy, client, version string) error {
	licence := filepath.Join(client, "../../LICENSE")
	for _, name := range []string{".", "tidegategrpc", "tidegateotel"} {
		if err := pack(proxy, filepath.Join(client, name), licence, version); err != nil {
			return fmt.Errorf("the module in %s: %w", name, err)
		}
	}
	return nil
}

func pack(proxy, folder, licence, version string) error {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	found := moduleLine.FindStringSubmatch(string(text))
	if found == nil {
		return fmt.Errorf("%s names no module", folder)
	}
	place := filepath.Join(proxy, found[1], "@v")
	if err := os.MkdirAll(place, 0o755); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"list": version + "\n", version + ".info": `{"Version":"` + version + `"}`, version + ".mod": string(text),
	} {
		if err := os.WriteFile(filepath.Join(place, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(place, version+".zip"))
	if err != nil {
		return err
	}
	archive := zip.NewWriter(file)
	err = fill(archive, folder, licence, found[1]+"@"+version+"/")
	if err == nil {
		err = archive.Close()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// fill adds a module's files; those of modules in folders beneath it are not its own.
func fill(archive *zip.Writer, folder, licence, prefix string) error {
	add := func(path, inside string) error {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		writer, err := archive.Create(prefix + filepath.ToSlash(inside))
		if err != nil {
			return err
		}
		_, err = writer.Write(content)
		return err
	}
	if err := add(licence, "LICENSE"); err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != folder {
				return fs.SkipDir
			}
			return nil
		}
		inside, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return add(path, inside)
	})
}
