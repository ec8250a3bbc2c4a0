#include "base/shared_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace tracestep {
namespace {

namespace fs = std::filesystem;

void* open(const std::string& path) {
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// Returns the folders in `folder` whose names start with `start`; none where it cannot be read.
std::vector<fs::path> folders_in(const fs::path& folder, std::string_view start) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().filename().string().starts_with(start) && it->is_directory(ignored)) {
      out.push_back(it->path());
    }
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

std::vector<fs::path> python_library_folders(const fs::path& prefix) {
  std::vector<fs::path> out;
  for (const fs::path& python : folders_in(prefix / "lib", "python")) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const fs::path& package : folders_in(python / packages / "nvidia", "")) {
        std::error_code ignored;
        if (fs::is_directory(package / "lib", ignored)) out.push_back(package / "lib");
      }
    }
  }
  return out;
}

std::vector<fs::path> toolkit_library_folders(int major) {
  std::vector<fs::path> out;
  for (const fs::path& toolkit :
       {fs::path("/usr/local/cuda"), fs::path(fmt::format("/usr/local/cuda-{}", major))}) {
    out.push_back(toolkit / "lib64");
    out.push_back(toolkit / "extras/CUPTI/lib64");
  }
  return out;
}

void* open_shared_library(const std::string& name, std::span<const fs::path> folders) {
  if (void* library = open(name)) return library;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::vector<fs::path> all;
  if (!error) all = python_library_folders(program.parent_path().parent_path());
  all.insert(all.end(), folders.begin(), folders.end());
  for (const fs::path& folder : all) {
    if (void* library = open((folder / name).string())) return library;
  }
  return nullptr;
}

}  // namespace tracestep
