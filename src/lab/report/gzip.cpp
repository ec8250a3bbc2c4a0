#include "lab/report/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr int kGzipWindow = 15 + 16;  // largest window, gzip header
constexpr std::size_t kChunk = std::size_t{1} << 18;

// Returns a text's bytes for zlib, which takes a pointer to mutable bytes but does not modify them.
Bytef* bytes_of(std::string_view text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
}

// Feeds `input` to `step` (deflate or inflate) in pieces and collects what comes out, until that is
// more than `max_bytes`; returns the last status.
template <class Step>
int pump(z_stream& z, std::string_view input, std::size_t max_bytes, std::string& out,
         Step&& step) {
  std::string buffer(kChunk, '\0');
  int status = Z_OK;
  do {
    const std::size_t size = std::min<std::size_t>(input.size(), kChunk);
    z.next_in = bytes_of(input);
    z.avail_in = static_cast<uInt>(size);
    input.remove_prefix(size);
    do {
      z.next_out = bytes_of(buffer);
      z.avail_out = static_cast<uInt>(buffer.size());
      status = step(z, input.empty());
      out.append(buffer, 0, buffer.size() - z.avail_out);
      if (out.size() > max_bytes) return status;
    } while (z.avail_out == 0 && status == Z_OK);
  } while (!input.empty() && status != Z_STREAM_END && (status == Z_OK || status == Z_BUF_ERROR));
  return status;
}

}  // namespace

std::string gzip(std::string_view text, std::string_view comment) {
  z_stream z{};
  TRACESTEP_CHECK(
      deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK,
      "zlib does not start");
  std::string ended(comment);
  gz_header header{};
  header.os = 3;  // Unix, as without a header of our own
  header.comment = reinterpret_cast<Bytef*>(ended.data());
  if (!comment.empty()) deflateSetHeader(&z, &header);
  std::string out;
  const int status = pump(z, text, text.max_size(), out, [](z_stream& s, bool is_last) {
    return deflate(&s, is_last ? Z_FINISH : Z_NO_FLUSH);
  });
  deflateEnd(&z);
  TRACESTEP_CHECK(status == Z_STREAM_END, "zlib ends with {}", status);
  return out;
}

std::string gunzip(std::string_view data, std::size_t max_bytes) {
  z_stream z{};
  TRACESTEP_CHECK(inflateInit2(&z, kGzipWindow) == Z_OK, "zlib does not start");
  std::string out;
  const int status =
      pump(z, data, max_bytes, out, [](z_stream& s, bool) { return inflate(&s, Z_NO_FLUSH); });
  inflateEnd(&z);
  if (out.size() > max_bytes) fail_input("gzip", "the text has more than {} bytes", max_bytes);
  if (status != Z_STREAM_END) fail_input("gzip", "the data are damaged or cut off");
  return out;
}

}  // namespace tracestep
