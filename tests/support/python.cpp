#include "support/python.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace fs = std::filesystem;

PythonRun check_snapshot(const MemorySnapshot& snapshot) {
  const TempFolder folder;
  const fs::path pickle = folder / "snapshot.pickle", json = folder / "snapshot.json";
  std::ofstream(pickle, std::ios::binary) << pickle_of(snapshot);
  std::ofstream(json) << json_of(snapshot);
  return check_snapshot_files(pickle, json);
}

PythonRun check_snapshot_files(const fs::path& pickle, const fs::path& json) {
  PythonRun out;
  const fs::path script = testing::source_folder() / "tests/tools/check_snapshot.py";
  out.has_python = fs::exists(script) && std::system("python3 -c pass 2>/dev/null") == 0;
  if (!out.has_python) return out;
  const std::string command =
      "python3 '" + script.string() + "' '" + pickle.string() + "' '" + json.string() + "' 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe))
    out.out.append(buffer, n);
  out.status = pclose(pipe);
  return out;
}

}  // namespace tracestep
