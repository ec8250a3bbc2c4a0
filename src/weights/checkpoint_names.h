// The names of the files in a folder of checkpoints that name one of them.
#pragma once

namespace tracestep {

inline constexpr const char *kLatestCheckpoint = "latest", *kBestCheckpoint = "best";

}  // namespace tracestep
