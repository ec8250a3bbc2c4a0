#include "lab/read/file_kind.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text_encoding.h"
#include "lab/read/byte_stream.h"

namespace tracestep {
namespace {

bool is_trace_name(const std::string& name) {
  return name.ends_with(".json") || name.ends_with(".json.gz");
}

// Returns the first bytes, unpacked: they tell a file's kind.
std::string beginning_of(const std::filesystem::path& path) {
  std::string text(std::size_t{1} << 12, ' ');
  text.resize(ByteStream(path).read(text));
  return text;
}

}  // namespace

RecordedKind recorded_kind(const std::filesystem::path& path) {
  const auto fail = [&](std::string what, std::string instead) {
    throw Error(ErrorCode::kInput, path.filename(), std::move(what), std::move(instead));
  };
  const std::string both =
      "a trace by export_chrome_trace() or a snapshot by _dump_snapshot() is read";
  const std::string text = beginning_of(path);
  if (text.empty()) fail("it is empty", both);
  if (text[0] == '\x80') return RecordedKind::kSnapshot;  // a pickle's first opcode
  if (text.starts_with("SQLite format")) {
    fail("it is an SQLite file, as Nsight Systems exports them, which are not read", both);
  }
  if (text.starts_with("PK")) fail("it is a zip archive, such as torch.save() writes", both);
  const TextMark mark = byte_order_mark_of(text);
  if (mark != TextMark::kNone && mark != TextMark::kUtf8) {
    fail("it is text in UTF-16 or UTF-32, by the mark at its beginning",
         "a recording in JSON is written in UTF-8");
  }
  const std::size_t begin = text.find_first_not_of(" \t\r\n", size_of(mark));
  const char first = begin == std::string::npos ? '\0' : text[begin];
  if (first != '{' && first != '[') fail("it is no recording: neither JSON nor a pickle", both);
  // A snapshot as JSON names its segments or its events first.
  const std::size_t segments = std::min(text.find("\"segments\""), text.find("\"device_traces\""));
  const bool is_snapshot = first == '{' && segments < text.find("\"traceEvents\"");
  return is_snapshot ? RecordedKind::kSnapshot : RecordedKind::kTrace;
}

bool is_recording(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  try {
    const std::string text = beginning_of(path);
    if (text.starts_with('\x80')) return true;
    constexpr std::string_view kMembers[] = {"\"traceEvents\"", "\"schemaVersion\"",
                                             "\"deviceProperties\"", "\"segments\"",
                                             "\"device_traces\""};
    return text.find("\"tracestep.") == std::string::npos &&
           std::ranges::any_of(kMembers, [&](std::string_view member) {
             return text.find(member) != std::string::npos;
           });
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::filesystem::path> recorded_files(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file() && is_trace_name(entry.path().filename().string())) {
      out.push_back(entry.path());
    }
  }
  std::ranges::sort(out);
  if (out.empty()) {
    throw Error(ErrorCode::kInput, path.filename(), "the folder holds no .json and no .json.gz",
                "a trace of each rank lies in it");
  }
  return out;
}

}  // namespace tracestep
