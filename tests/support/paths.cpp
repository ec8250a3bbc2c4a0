#include "support/paths.h"

namespace tracestep::testing {
namespace {

namespace fs = std::filesystem;

// The folder of the build, in whose folder tests/ test programs lie.
fs::path build_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path();
}

}  // namespace

fs::path source_folder() {
  const fs::path root = build_folder();
  return fs::exists(root / "bundle.json") ? root : fs::path(TRACESTEP_SOURCE_DIR);
}

fs::path program_path() {
  return build_folder() / "tracestep";
}

}  // namespace tracestep::testing
