// Package drills runs the commands of the pages docs/operations/drills.md and cluster-drills.md as they
// are written. The tests only do what the text between the commands asks for.
package drills
