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

// A snapshot as JSON names its segments or its events first.
bool begins_as_snapshot(const std::filesystem::path& path) {
  std::string head(std::size_t{1} << 12, ' ');
  head.resize(ByteStream(path).read(head));
  const std::size_t segments = std::min(head.find("\"segments\""), head.find("\"device_traces\""));
  return segments < head.find("\"traceEvents\"");
}

}  // namespace

RecordedKind recorded_kind(const std::filesystem::path& path) {
  const std::vector<unsigned char> head = first_bytes(path);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const auto fail = [&](std::string what, std::string instead) -> RecordedKind {
    throw Error(ErrorCode::kInput, path.filename().string(), std::move(what), std::move(instead));
  };
  const std::string both =
      "a trace by export_chrome_trace() or a snapshot by _dump_snapshot() is read";
  if (head.empty()) return fail("it is empty", both);
  if (head[0] == 0x80) return RecordedKind::kSnapshot;  // a pickle's first opcode
  if (head.size() > 1 && head[0] == 0x1f && head[1] == 0x8b) return RecordedKind::kTrace;
  if (text.starts_with("SQLite format")) {
    return fail("it is an SQLite file, as Nsight Systems exports them, which are not read", both);
  }
  if (text.starts_with("PK")) return fail("it is a zip archive, such as torch.save() writes", both);
  const TextMark mark = byte_order_mark_of(text);
  if (mark != TextMark::kNone && mark != TextMark::kUtf8) {
    return fail("it is text in UTF-16 or UTF-32, by the mark at its beginning",
                "a recording in JSON is written in UTF-8");
  }
  const std::size_t begin = text.find_first_not_of(" \t\r\n", size_of(mark));
  const char first = begin == std::string_view::npos ? '\0' : text[begin];
  if (first == '{' && begins_as_snapshot(path)) return RecordedKind::kSnapshot;
  if (first == '{' || first == '[') return RecordedKind::kTrace;
  return fail("it is no recording: neither JSON nor a pickle", both);
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
    throw Error(ErrorCode::kInput, path.filename().string(),
                "the folder holds no .json and no .json.gz", "a trace of each rank lies in it");
  }
  return out;
}

}  // namespace tracestep
