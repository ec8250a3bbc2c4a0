// The commit that this program was built from, written at build time (cmake/commit.cmake).
#pragma once

namespace tracestep {

// Twelve hexadecimal digits, with "-dirty" when tracked files were changed; of an archive made by
// `git archive` the commit that it was made from; empty: neither is known.
extern const char* const kCommit;

}  // namespace tracestep
