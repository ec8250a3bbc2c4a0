#include "train/text_source.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include <fmt/ranges.h>

#include "base/error.h"
#include "train/mapped_file.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{4} << 30;

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) entries.push_back(*it);
  if (error) fail_input("text", "{} cannot be read: {}", folder.string(), error.message());
  // By bytes, so that no locale changes what a model is trained on.
  std::ranges::sort(entries, {}, [](const fs::directory_entry& e) { return e.path().native(); });
  return entries;
}

class Reader {
 public:
  void add_path(const fs::path& path) {
    std::error_code ignored;  // opening it will tell
    if (fs::is_directory(path, ignored)) return add_folder(path);
    if (!add_file(path)) {
      fail_input("text", "{} is a binary file (it contains NUL bytes)", path.string());
    }
  }

  TextSource take() { return std::move(out_); }

 private:
  void add_folder(const fs::path& folder) {
    for (const fs::directory_entry& entry : sorted_entries(folder)) {
      std::error_code gone;  // removed since the folder was listed: then it is neither
      if (is_hidden(entry.path()) || entry.is_symlink(gone)) continue;
      if (entry.is_directory(gone)) {
        add_folder(entry.path());
      } else if (entry.is_regular_file(gone) && !add_file(entry.path())) {
        ++out_.skipped_binary_count;
      }
    }
  }

  // False for a binary file.
  bool add_file(const fs::path& path) {
    const MappedFile file(path, "text");
    const auto bytes = file.bytes();
    if (bytes.empty()) return true;
    if (std::memchr(bytes.data(), 0, bytes.size()) != nullptr) return false;
    if (bytes.size() > kMaxTextBytes - std::min(kMaxTextBytes, out_.text.size() + 1)) {
      fail_input("text", "the text grows beyond {} bytes at {}", kMaxTextBytes, path.string());
    }
    if (!out_.text.empty() && out_.text.back() != '\n') out_.text += '\n';
    out_.text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    out_.files.push_back(path);
    return true;
  }

  TextSource out_;
};

}  // namespace

TextSource read_text(std::span<const fs::path> paths) {
  Reader reader;
  for (const fs::path& path : paths) reader.add_path(path);
  TextSource out = reader.take();
  if (out.text.empty()) {
    std::vector<std::string> names;
    for (const fs::path& path : paths) names.push_back(path.string());
    fail_input("text", "there is no text in {}", fmt::join(names, ", "));
  }
  return out;
}

}  // namespace tracestep
