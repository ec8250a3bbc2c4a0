#include "lab/report/pickle.h"

#include <bit>

namespace tracestep {
namespace {

constexpr int kBatch = 1000;  // items per append, as Python's own writer

}  // namespace

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xff);
}

void PickleWriter::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0 && value <= 0xff) {
    out_ += 'K';
    little_endian(bits, 1);
  } else if (value >= 0 && value <= 0xffff) {
    out_ += 'M';
    little_endian(bits, 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    out_ += 'J';
    little_endian(bits, 4);
  } else {
    out_ += '\x8a';
    out_ += '\x08';
    little_endian(bits, 8);
  }
}

void PickleWriter::real(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  out_ += 'G';
  for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> (8 * i) & 0xff);
}

void PickleWriter::text(std::string_view value) {
  if (const auto found = texts_.find(value); found != texts_.end()) return fetch(found->second);
  out_ += 'X';
  little_endian(value.size(), 4);
  out_ += value;
  texts_.emplace(value, remember());
}

void PickleWriter::pair(std::int64_t first, std::int64_t second) {
  integer(first);
  integer(second);
  out_ += '\x86';
}

void PickleWriter::begin_list() {
  out_ += ']';
  batched_.push_back(0);
}

void PickleWriter::next_item() {
  int& count = batched_.back();
  if (count == kBatch) {
    out_ += 'e';
    count = 0;
  }
  if (count++ == 0) out_ += '(';
}

void PickleWriter::end_list() {
  if (batched_.back() > 0) out_ += 'e';
  batched_.pop_back();
}

int PickleWriter::remember() {
  if (memos_ <= 0xff) {
    out_ += 'q';
    little_endian(static_cast<std::uint64_t>(memos_), 1);
  } else {
    out_ += 'r';
    little_endian(static_cast<std::uint64_t>(memos_), 4);
  }
  return memos_++;
}

void PickleWriter::fetch(int memo) {
  if (memo <= 0xff) {
    out_ += 'h';
    little_endian(static_cast<std::uint64_t>(memo), 1);
  } else {
    out_ += 'j';
    little_endian(static_cast<std::uint64_t>(memo), 4);
  }
}

}  // namespace tracestep
