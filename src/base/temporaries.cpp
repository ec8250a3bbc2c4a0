#include "base/temporaries.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <random>
#include <string_view>

#include <fmt/format.h>

#include "base/output_file.h"

namespace tracestep {
namespace {

constexpr std::string_view kTemporaryPrefix = ".tracestep-", kTemporarySuffix = ".tmp";
constexpr std::size_t kTemporaryDigits = 16;

bool is_temporary(std::string_view name) {
  if (!name.starts_with(kTemporaryPrefix) || !name.ends_with(kTemporarySuffix)) return false;
  name.remove_prefix(kTemporaryPrefix.size());
  name.remove_suffix(std::min(name.size(), kTemporarySuffix.size()));
  return name.size() == kTemporaryDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string temporary_name() {
  std::random_device device;
  const std::uint64_t bits = std::uint64_t{device()} << 32 | device();
  return fmt::format("{}{:0{}x}{}", kTemporaryPrefix, bits, kTemporaryDigits, kTemporarySuffix);
}

bool hold(int handle) {
  // A file system without locks fails otherwise: there, nothing stale is removed either.
  if (::flock(handle, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat info {};
  return ::fstat(handle, &info) == 0 && info.st_nlink > 0;
}

void remove_stale_temporaries(const Directory& folder) {
  for (const std::string& name : folder.names()) {
    if (!is_temporary(name)) continue;
    const auto kind = folder.kind_of(name);
    const bool is_folder = kind == Directory::Kind::kFolder;
    if (!is_folder && kind != Directory::Kind::kFile) continue;
    const FileHandle held = folder.open_file(name, is_folder ? O_RDONLY | O_DIRECTORY : O_WRONLY);
    if (!held.is_open() || ::flock(held.get(), LOCK_EX | LOCK_NB) != 0) continue;
    try {
      folder.remove(name);
    } catch (const Error&) {
    }
  }
}

}  // namespace tracestep
