// The commit that this program was built from, written at build time (cmake/commit.cmake).
#pragma once

namespace tracestep {

// The commit: twelve hexadecimal digits, followed by "-dirty" if tracked files were changed. In an
// archive made by `git archive` it is the archived commit. Empty if neither is known.
extern const char* const kCommit;

}  // namespace tracestep
