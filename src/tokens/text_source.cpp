#include "tokens/text_source.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/reading_progress.h"
#include "base/text_encoding.h"
#include "base/units.h"
#include "base/utf8.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{4} << 30;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // read at once
constexpr std::size_t kLongestMark = 4;

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) entries.push_back(*it);
  if (error) fail_input("text"_field, "{} cannot be read: {}", folder.string(), error.message());
  // Sorted by bytes, so that the order does not depend on the locale.
  std::ranges::sort(entries, {}, [](const fs::directory_entry& e) { return e.path().native(); });
  return entries;
}

constexpr const char *kBinary = "binary", *kUtf32 = "UTF-32", *kBare = "UTF-16 without a mark?";

// Says why bytes with a NUL are left out: they seem to be UTF-16 without a mark, or are binary.
const char* kind_of_binary(std::string_view bytes) {
  return looks_like_utf16(bytes.substr(0, kPieceBytes)) ? kBare : kBinary;
}

[[noreturn]] void refuse(const std::string& name, std::string_view reason) {
  if (reason == kBinary)
    fail_input("text"_field, "{} is a binary file (it contains NUL bytes)", name);
  throw Error(ErrorCode::kInput, "text"_field,
              fmt::format("{} is no text in UTF-8 ({})", name, reason), "save it as UTF-8");
}

class Reader {
 public:
  void add_path(const fs::path& path) {
    std::error_code ignored;  // opening the file reports it
    if (fs::is_directory(path, ignored)) return add_folder(path);
    if (const std::string why = add_file(path); !why.empty()) refuse(path.string(), why);
  }

  TextSource take() { return std::move(out_); }

 private:
  void add_folder(const fs::path& folder) {
    for (const fs::directory_entry& entry : sorted_entries(folder)) {
      const fs::path& path = entry.path();
      std::error_code gone;  // removed since the folder was listed: then it is neither
      if (is_hidden(path)) {
        out_.left_out["hidden"].push_back(path);
      } else if (entry.is_symlink(gone)) {
        out_.left_out["a link"].push_back(path);
      } else if (entry.is_directory(gone)) {
        add_folder(path);
      } else if (!entry.is_regular_file(gone)) {
        out_.left_out["no file"].push_back(path);
      } else if (entry.file_size(gone) == 0) {
        out_.left_out["empty"].push_back(path);
      } else if (const std::string why = add_file(path); !why.empty()) {
        out_.left_out[why].push_back(path);
      }
    }
  }

  // Adds the file's text. Returns why the file is no text; empty: it was added.
  std::string add_file(const fs::path& path) {
    const InputFile file(path, "text"_field);
    if (file.size() == 0) return {};
    const std::size_t before = out_.text.size();
    if (file.size() > kMaxTextBytes - std::min(kMaxTextBytes, before + 1)) {
      if (starts_binary(file)) return kBinary;
      fail_input("text"_field, "the text grows beyond {} bytes at {}", kMaxTextBytes,
                 path.string());
    }
    if (before > 0 && out_.text.back() != '\n') out_.text += '\n';
    const std::size_t begin = out_.text.size();
    const std::string why = append(file, byte_order_mark_of(start_of(file, kLongestMark)));
    if (!why.empty()) {
      out_.text.resize(before);
      return why;
    }
    out_.files.push_back(path);
    out_.bounds.emplace_back(begin, out_.text.size());
    remark(path, std::string_view(out_.text).substr(begin));
    return {};
  }

  static std::string start_of(const InputFile& file, std::size_t bytes) {
    std::string start(std::min<std::size_t>(file.size(), bytes), '\0');
    file.read(0, std::as_writable_bytes(std::span(start)));
    return start;
  }

  // True if the file's first bytes have a NUL; more need not be read, however large a file is.
  static bool starts_binary(const InputFile& file) {
    return start_of(file, kPieceBytes).find('\0') != std::string::npos;
  }

  // Appends the file's text. Returns why it is none, and leaves what was read so far; else empty.
  std::string append(const InputFile& file, TextMark mark) {
    if (mark == TextMark::kUtf32) return kUtf32;
    const bool is_wide = mark == TextMark::kUtf16Little || mark == TextMark::kUtf16Big;
    if (mark == TextMark::kUtf8) out_.remarks["byte-order mark left out"].push_back(file.path());
    if (!is_wide) return append_from(file, size_of(mark));
    std::string bytes(file.size() - size_of(mark), '\0');
    file.read(size_of(mark), std::as_writable_bytes(std::span(bytes)));
    const std::optional<std::string> text = utf8_of_utf16(bytes, mark);
    if (!text) return kBinary;
    out_.text += *text;
    out_.remarks["read as UTF-16"].push_back(file.path());
    return {};
  }

  std::string append_from(const InputFile& file, std::uint64_t at) {
    ReadingProgress progress("reading " + file.path().string(),
                             static_cast<std::int64_t>(file.size()));
    out_.text.reserve(out_.text.size() + file.size());
    while (at < file.size()) {
      const std::size_t before = out_.text.size();
      out_.text.resize(before + std::min<std::size_t>(file.size() - at, kPieceBytes));
      const auto piece = std::span(out_.text).subspan(before);
      file.read(at, std::as_writable_bytes(piece));
      const std::string_view read(piece.data(), piece.size());
      if (read.find('\0') != read.npos) return kind_of_binary(read);
      at += piece.size();
      progress.update(static_cast<std::int64_t>(at));
    }
    return {};
  }

  void remark(const fs::path& path, std::string_view text) {
    if (!is_utf8(text)) {
      out_.remarks["not UTF-8 (Latin-1?), its bytes taken as they are"].push_back(path);
    }
    if (text.find("\r\n") != text.npos) out_.remarks["CRLF line ends, kept"].push_back(path);
  }

  TextSource out_;
};

// Names at most three paths: "a.png, b.png and 3 more".
std::string words_of(const std::vector<fs::path>& paths) {
  constexpr std::size_t kMostNames = 3;
  std::vector<std::string> names;
  for (const fs::path& path : paths) names.push_back(path.string());
  const std::size_t more = names.size() - std::min(kMostNames, names.size());
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

TextSource read_text(std::span<const fs::path> paths) {
  Reader reader;
  for (const fs::path& path : paths) reader.add_path(path);
  TextSource out = reader.take();
  if (out.text.empty()) {
    std::vector<std::string> names;
    for (const fs::path& path : paths) names.push_back(path.string());
    fail_input("text"_field, "there is no text in {}", fmt::join(names, ", "));
  }
  return out;
}

std::string words_of(const TextSource& source) {
  const std::size_t count = source.files.size();
  std::string out = fmt::format("{} file{}, {}", count, count == 1 ? "" : "s",
                                format_bytes(std::ssize(source.text)));
  std::vector<std::string> left_out;
  for (const auto& [why, paths] : source.left_out) {
    left_out.push_back(fmt::format("{} ({})", words_of(paths), why));
  }
  if (!left_out.empty()) out += fmt::format("; left out: {}", fmt::join(left_out, ", "));
  for (const auto& [what, paths] : source.remarks) {
    out += fmt::format("; {}: {}", what, words_of(paths));
  }
  return out;
}

std::string text_of_bytes(std::string bytes, const std::string& name) {
  const TextMark mark = byte_order_mark_of(bytes);
  bytes.erase(0, size_of(mark));
  if (mark == TextMark::kUtf32) refuse(name, kUtf32);
  if (mark == TextMark::kUtf16Little || mark == TextMark::kUtf16Big) {
    const std::optional<std::string> text = utf8_of_utf16(bytes, mark);
    if (!text) refuse(name, kBinary);
    return *text;
  }
  if (looks_like_utf16(bytes)) refuse(name, kBare);
  return bytes;
}

}  // namespace tracestep
