#include "codegen/kernel_cache.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSchema = "tracestep.kernel.v1";
constexpr std::uintmax_t kMostFileBytes = std::uintmax_t{64} << 20;

// FNV-1a (Fowler, Noll and Vo); `begin` is the offset basis.
std::uint64_t hash(std::string_view text, std::uint64_t begin = 0xcbf29ce484222325u) {
  std::uint64_t h = begin;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

std::string header_of(std::string_view key, std::string_view bytes) {
  return fmt::format("{} {} {} {:016x}\n", kSchema, key.size(), bytes.size(), hash(bytes));
}

}  // namespace

fs::path KernelCache::file_of(std::string_view key) const {
  return folder_ / fmt::format("{:016x}{:016x}.kernel", hash(key), hash(key, key.size() + 1));
}

std::optional<std::string> KernelCache::find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  std::error_code status;
  const fs::path path = file_of(key);
  const std::uintmax_t size = fs::file_size(path, status);
  if (status || size > kMostFileBytes) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) return std::nullopt;
  const std::string text = std::move(content).str();
  const std::size_t end = text.find('\n');
  if (end == std::string::npos || text.size() < end + 1 + key.size()) return std::nullopt;
  const std::string_view all = text;
  const std::string_view bytes = all.substr(end + 1 + key.size());
  const bool same = all.substr(end + 1, key.size()) == key;
  if (!same || all.substr(0, end + 1) != header_of(key, bytes)) return std::nullopt;
  fs::last_write_time(path, fs::file_time_type::clock::now(), status);  // it was used
  return std::string(bytes);
}

bool KernelCache::add(std::string_view key, std::string_view bytes) const {
  if (folder_.empty()) return false;
  std::error_code status;
  fs::create_directories(folder_, status);
  const fs::path path = file_of(key);
  fs::path part = path;
  part += fmt::format(".{}.part", getpid());
  {
    std::ofstream file(part, std::ios::binary);
    file << header_of(key, bytes) << key << bytes;
    file.close();
    if (file) fs::rename(part, path, status);
    if (file && !status) {
      remove_least_used();
      return true;
    }
  }
  fs::remove(part, status);
  return false;
}

// Counts and removes the temporary files (.part) of killed processes too.
void KernelCache::remove_least_used() const {
  struct File {
    fs::path path;
    fs::file_time_type used;
    std::uintmax_t bytes;
  };
  std::vector<File> files;
  std::uintmax_t total = 0;
  std::error_code status;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, status)) {
    const fs::path name = entry.path().extension();
    if (name != ".kernel" && name != ".part") continue;
    File file{entry.path(), entry.last_write_time(status), entry.file_size(status)};
    if (status) continue;  // another process has just removed it
    total += file.bytes;
    files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &File::used);
  for (const File& file : files) {
    if (total <= most_bytes_) return;
    if (fs::remove(file.path, status)) total -= file.bytes;
  }
}

std::string KernelBinaries::get(std::string_view key, const std::function<std::string()>& compile) {
  if (std::optional<std::string> kept = cache_.find(key)) return *std::move(kept);
  std::string out = compile();
  const bool is_kept = cache_.add(key, out);
  if (!is_kept && !cache_.folder().empty() && !has_warned_.exchange(true)) {
    log_warn("compiled kernels cannot be kept in {}; every process compiles its own",
             cache_.folder().string());
  }
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
