// The names of the files in a checkpoint folder that point to one of its checkpoints.
#pragma once

namespace tracestep {

inline constexpr const char *kLatestCheckpoint = "latest", *kBestCheckpoint = "best";

}  // namespace tracestep
