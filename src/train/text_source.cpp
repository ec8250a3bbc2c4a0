#include "train/text_source.h"

#include <algorithm>
#include <system_error>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/reading_progress.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{4} << 30;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // read at once

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) entries.push_back(*it);
  if (error) fail_input("text", "{} cannot be read: {}", folder.string(), error.message());
  // Sorted by bytes, so that the order does not depend on the locale.
  std::ranges::sort(entries, {}, [](const fs::directory_entry& e) { return e.path().native(); });
  return entries;
}

class Reader {
 public:
  void add_path(const fs::path& path) {
    std::error_code ignored;  // opening the file reports it
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
    const InputFile file(path, "text");
    if (file.size() == 0) return true;
    const std::size_t before = out_.text.size();
    if (file.size() > kMaxTextBytes - std::min(kMaxTextBytes, before + 1)) {
      if (starts_binary(file)) return false;
      fail_input("text", "the text grows beyond {} bytes at {}", kMaxTextBytes, path.string());
    }
    if (before > 0 && out_.text.back() != '\n') out_.text += '\n';
    if (!append(file)) {
      out_.text.resize(before);
      return false;
    }
    out_.files.push_back(path);
    return true;
  }

  // A binary file of any size must not stop a folder from being read.
  static bool starts_binary(const InputFile& file) {
    std::string start(std::min<std::size_t>(file.size(), kPieceBytes), '\0');
    file.read(0, std::as_writable_bytes(std::span(start)));
    return start.find('\0') != start.npos;
  }

  // False at the first NUL byte; what was read so far stays in the text.
  bool append(const InputFile& file) {
    ReadingProgress progress("reading " + file.path().string(),
                             static_cast<std::int64_t>(file.size()));
    out_.text.reserve(out_.text.size() + file.size());
    for (std::uint64_t at = 0; at < file.size();) {
      const std::size_t before = out_.text.size();
      out_.text.resize(before + std::min<std::size_t>(file.size() - at, kPieceBytes));
      const auto piece = std::span(out_.text).subspan(before);
      file.read(at, std::as_writable_bytes(piece));
      if (out_.text.find('\0', before) != std::string::npos) return false;
      at += piece.size();
      progress.update(static_cast<std::int64_t>(at));
    }
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
