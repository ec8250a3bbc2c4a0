// The commit that this program was built from, written at build time (cmake/commit.cmake).
#pragma once

namespace tracestep {

// Twelve hexadecimal digits, followed by "-dirty" if tracked files were changed. A source archive
// made by `git archive` has the commit that it was made from. Empty if neither is known.
extern const char* const kCommit;

}  // namespace tracestep
