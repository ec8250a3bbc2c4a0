#include "codegen/kernel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/input_file.h"
#include "base/log.h"
#include "base/output_file.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSchema = "tracestep.kernel.v1";
constexpr std::uintmax_t kMostFileBytes = std::uintmax_t{64} << 20;

// Hashes by FNV-1a (Fowler, Noll and Vo); `begin` is the offset basis.
std::uint64_t hash(std::string_view text, std::uint64_t begin = 0xcbf29ce484222325u) {
  std::uint64_t h = begin;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

std::string header_of(std::string_view key, std::string_view bytes) {
  return fmt::format("{} {} {} {:016x}\n", kSchema, key.size(), bytes.size(), hash(bytes));
}

constexpr std::string_view kEnding = ".kernel";
constexpr std::size_t kDigits = 32;

std::string name_of(std::string_view key) {
  return fmt::format("{:016x}{:016x}{}", hash(key), hash(key, key.size() + 1), kEnding);
}

bool is_own_name(std::string_view name) {
  return name.size() == kDigits + kEnding.size() && name.ends_with(kEnding) &&
         name.find_first_not_of("0123456789abcdef") == kDigits;
}

bool is_private(const struct stat& info) {
  return info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void tell(std::string* problem, std::string text) {
  if (problem != nullptr) *problem = std::move(text);
}

std::string unusable(const fs::path& folder, std::string_view reason) {
  return fmt::format("compiled kernels cannot be kept in {}: {}; every process compiles its own",
                     folder.string(), reason);
}

}  // namespace

std::optional<Directory> KernelCache::open(std::string* problem) const {
  auto out = Directory::open(folder_);
  struct stat info {};
  if (!out || ::fstat(out->fd(), &info) != 0) {
    if (errno != ENOENT) tell(problem, unusable(folder_, std::strerror(errno)));
    return std::nullopt;
  }
  if (is_private(info)) return out;
  tell(problem, unusable(folder_, "another user owns it or may write to it; chmod -R go-w it"));
  return std::nullopt;
}

std::optional<std::string> KernelCache::find(std::string_view key, std::string* problem) const {
  if (folder_.empty()) return std::nullopt;
  const auto folder = open(problem);
  if (!folder) return std::nullopt;
  const std::string name = name_of(key);
  FileHandle file = folder->open_file(name, O_RDONLY);
  struct stat info {};
  if (!file.is_open() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  const fs::path path = folder_ / name;
  if (!is_private(info)) {
    tell(problem, fmt::format("the compiled kernel {} is not used: another user owns it or may "
                              "write to it",
                              path.string()));
    return std::nullopt;
  }
  ::futimens(file.get(), nullptr);  // it was used
  std::string text;
  try {
    text = InputFile(file.release(), path, "kernel").text(kMostFileBytes);
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::size_t end = text.find('\n');
  if (end == std::string::npos || text.size() < end + 1 + key.size()) return std::nullopt;
  const std::string_view all = text;
  const std::string_view bytes = all.substr(end + 1 + key.size());
  const bool same = all.substr(end + 1, key.size()) == key;
  if (!same || all.substr(0, end + 1) != header_of(key, bytes)) return std::nullopt;
  return std::string(bytes);
}

bool KernelCache::add(std::string_view key, std::string_view bytes, std::string* problem) const {
  if (folder_.empty()) return false;
  if (const int error = make_private_folders(folder_); error != 0) {
    tell(problem, unusable(folder_, std::strerror(error)));
    return false;
  }
  try {
    const auto folder = open(problem);
    if (!folder) return false;
    const std::string name = name_of(key);
    // A file that find() refuses would hand its permissions on.
    struct stat info {};
    if (::fstatat(folder->fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        !is_private(info)) {
      folder->remove(name);
    }
    OutputFile file(*folder, name);
    ::fchmod(file.descriptor(), S_IRUSR | S_IWUSR);
    file.write(header_of(key, bytes));
    file.write(key);
    file.write(bytes);
    file.commit();
    remove_least_used(*folder);
    return true;
  } catch (const Error& error) {
    tell(problem, unusable(folder_, error.message()));
    return false;
  }
}

void KernelCache::remove_least_used(const Directory& folder) const {
  struct File {
    std::string name;
    timespec used;
    std::uintmax_t bytes;
  };
  remove_stale_temporaries(folder);
  std::vector<File> files;
  std::uintmax_t total = 0;
  for (std::string& name : folder.names()) {
    struct stat info {};
    if (!is_own_name(name) ||
        ::fstatat(folder.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    total += static_cast<std::uintmax_t>(info.st_size);
    files.push_back({std::move(name), info.st_mtim, static_cast<std::uintmax_t>(info.st_size)});
  }
  std::ranges::sort(files, {},
                    [](const File& f) { return std::pair(f.used.tv_sec, f.used.tv_nsec); });
  for (const File& file : files) {
    if (total <= most_bytes_) return;
    if (::unlinkat(folder.fd(), file.name.c_str(), 0) == 0) total -= file.bytes;
  }
}

std::string KernelBinaries::get(std::string_view key, const std::function<std::string()>& compile) {
  std::string problem;
  if (std::optional<std::string> kept = cache_.find(key, &problem)) return *std::move(kept);
  std::string out = compile();
  cache_.add(key, out, &problem);
  if (!problem.empty() && !has_warned_.exchange(true)) log_warn("{}", problem);
  return out;
}

std::vector<std::string> KernelBinaries::get_all(
    std::span<const std::string> keys, const std::function<std::string(std::size_t)>& compile,
    unsigned threads) {
  std::vector<std::string> out(keys.size());
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::once_flag failed;
  const auto work = [&] {
    for (std::size_t i = next++; i < keys.size(); i = next++) {
      try {
        out[i] = get(keys[i], [&] { return compile(i); });
      } catch (...) {
        std::call_once(failed, [&] { failure = std::current_exception(); });
        next = keys.size();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < std::min<std::size_t>(threads, keys.size()); ++i) {
      try {
        helpers.emplace_back(work);
      } catch (const std::system_error&) {  // no more threads: those that run do the work
        break;
      }
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return out;
}

}  // namespace tracestep
