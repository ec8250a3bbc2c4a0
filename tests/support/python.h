// Lets Python look at what was written.
#pragma once

#include <filesystem>
#include <string>

#include "lab/snapshots/snapshot.h"

namespace tracestep {

struct PythonRun {
  bool has_python = false;  // and the script is there: a bundle of tests may have neither
  int status = -1;
  std::string out;  // stdout and stderr
};

// Writes the snapshot in both forms and runs tests/tools/check_snapshot.py on them.
PythonRun check_snapshot(const MemorySnapshot& snapshot);
PythonRun check_snapshot_files(const std::filesystem::path& pickle,
                               const std::filesystem::path& json);

}  // namespace tracestep
