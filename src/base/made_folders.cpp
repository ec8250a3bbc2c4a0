#include "base/made_folders.h"

#include <algorithm>

namespace tracestep {

namespace fs = std::filesystem;

MadeFolders::MadeFolders(fs::path path) {
  std::vector<fs::path> missing;
  for (std::error_code ignored; !path.empty() && !fs::exists(path, ignored);) {
    missing.push_back(path);
    path = path.has_relative_path() ? path.parent_path() : fs::path();
  }
  while (!missing.empty() && !error_) {
    // False: another process was quicker, and it is that one's.
    if (fs::create_directory(missing.back(), error_)) made_.push_back(missing.back());
    missing.pop_back();
  }
  std::ranges::reverse(made_);
}

MadeFolders::~MadeFolders() {
  std::error_code ignored;
  for (const fs::path& folder : made_) fs::remove(folder, ignored);  // none that holds anything
}

}  // namespace tracestep
