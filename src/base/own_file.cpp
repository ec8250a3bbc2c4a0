#include "base/own_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace tracestep {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kHeadBytes = 4096, kTailBytes = 64;

// A text that an output begins with, and one that it contains; comparisons ignore white space.
struct Mark {
  std::string_view begins, holds = {};
};

constexpr std::string_view kWeights = R"({"__metadata__":{)";  // behind a length of 8 bytes

constexpr Mark kMarks[] = {
    // Results, snapshots, rows to resume, lists of tasks, tuned products; calibrations and what was
    // checked against them; logs.
    {R"({"schema":"tracestep.)"},
    {R"({"checksum":")", R"("content":{"schema":"tracestep.)"},
    {R"({"date_utc":)", R"("measured_ms":)"},
    {R"({"step":)", R"("grad_norm":)"},
    // Chrome traces, plain and compressed; pickles; weights.
    {R"({"schemaVersion":1,)", R"("tool":"tracestep)"},
    {"\x1f\x8b", kTraceMark},
    {"\x80", kSnapshotSchema},
    {kWeights, R"("generator":"tracestep")"},
    // Pictures and pages.
    {"\x89PNG", "Software\0tracestep"sv},
    {"<svg", kPictureMark},
    {"<!DOCTYPEhtml>", R"(<metaname="generator"content="tracestep")"},
    // Texts, by a comment of each format, and pages of the documentation.
    {"#tracestep."},
    {"<!--tracestep."},
    {"%tracestep."},
    {"//tracestep."},
    {";tracestep."},
    {"#", "Writtenby`tracestepshow"},
    {".THTRACESTEP"},
    {"tracestepbytetokenizer1"},
    // Marks as earlier versions wrote them.
    {kWeights, R"("format":"pt","heads":")"},
    {R"(<svgxmlns="http://www.w3.org/2000/svg"viewBox="00760)", R"(<rectclass="ground")"},
    {"<!DOCTYPEhtml>", "<title>Atrainingstep,measured</title>"},
    {"size,context,batch,vocab,mode,precision,ops,device,status,"},
    {"batch,width,context,causal,attention,precision,status,"},
};

std::string without_space(std::string_view text) {
  std::string out;
  std::ranges::copy_if(text, std::back_inserter(out),
                       [](char c) { return " \t\r\n"sv.find(c) == std::string_view::npos; });
  return out;
}

bool has_mark(std::string_view head) {
  constexpr std::size_t kLengthBytes = 8;
  const std::string dense = without_space(head);
  const std::string header = without_space(head.substr(std::min(head.size(), kLengthBytes)));
  return std::ranges::any_of(kMarks, [&](const Mark& mark) {
    const std::string& text = mark.begins == kWeights ? header : dense;
    return text.starts_with(mark.begins) && text.find(mark.holds) != std::string::npos;
  });
}

// True if the text begins as CSV that this program wrote: the first line has quotes around its
// first name alone, which mean nothing to readers and which no other writer puts there.
bool has_csv_mark(std::string_view head) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  if (!line.starts_with('"') || line.size() == head.size()) return false;
  const std::size_t close = line.find('"', 1);
  return close != std::string_view::npos && line.substr(close + 1).find('"') == line.npos &&
         (close + 1 == line.size() || line[close + 1] == ',');
}

// True for a log whose first line was cut short by the end of its process.
bool is_torn_log(std::string_view head) {
  return head.starts_with(R"({"step":)") && head.find_first_of("\n}") == std::string_view::npos;
}

std::string read_at(int descriptor, std::size_t offset, std::size_t bytes) {
  std::string out(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(descriptor, out.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  out.resize(done);
  return out;
}

}  // namespace

bool is_own(std::string_view head, std::string_view tail) {
  head = head.substr(0, kHeadBytes);
  return has_mark(head) || has_csv_mark(head) || is_torn_log(head) ||
         tail.ends_with(kTokenizerMark);
}

bool is_own_or_empty(int descriptor) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return false;
  const auto size = static_cast<std::size_t>(info.st_size);
  const std::size_t tail = std::min(size, kTailBytes);
  return size == 0 || is_own(read_at(descriptor, 0, std::min(size, kHeadBytes)),
                             read_at(descriptor, size - tail, tail));
}

}  // namespace tracestep
