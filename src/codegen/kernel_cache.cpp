#include "codegen/kernel_cache.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace tracestep {
namespace {

constexpr std::string_view kSchema = "tracestep.kernel.v1";
constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;

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

std::filesystem::path KernelCache::file_of(std::string_view key) const {
  return folder_ / fmt::format("{:016x}{:016x}.kernel", hash(key), hash(key, key.size() + 1));
}

std::optional<std::string> KernelCache::find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  std::error_code status;
  const std::filesystem::path path = file_of(key);
  const std::uintmax_t size = std::filesystem::file_size(path, status);
  if (status || size > kMostBytes) return std::nullopt;
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
  return std::string(bytes);
}

bool KernelCache::add(std::string_view key, std::string_view bytes) const {
  if (folder_.empty()) return false;
  std::error_code status;
  std::filesystem::create_directories(folder_, status);
  const std::filesystem::path path = file_of(key);
  std::filesystem::path part = path;
  part += fmt::format(".{}.part", getpid());
  {
    std::ofstream file(part, std::ios::binary);
    file << header_of(key, bytes) << key << bytes;
    file.close();
    if (file) std::filesystem::rename(part, path, status);
    if (file && !status) return true;
  }
  std::filesystem::remove(part, status);
  return false;
}

}  // namespace tracestep
