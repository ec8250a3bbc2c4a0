// A reader of Python's pickle format for plain data only: numbers, text, lists, tuples and dicts of
// protocols 2 to 5. A file with a class or a call is refused, so an untrusted file cannot run code;
// nor can it take more than a few times its size in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

class PickleValue;

// The values of a file, in lists without pointers: scalars stay in the file's bytes and containers
// refer to their items by index, so that nesting, sharing and self-references cost no stack and
// cannot leak.
class Pickle {
 public:
  // Reads `bytes`, fewer than 2^31, which must outlive the object. Throws Error{kInput} naming
  // `where` and the byte: for a truncated file, an opcode that makes objects, values that need more
  // than 3 times its size in memory.
  Pickle(std::string_view bytes, const std::string& where);

  PickleValue root() const;

 private:
  friend class PickleValue;
  friend class PickleReader;

  // The index of a container when the highest bit is set, else the offset of a scalar's opcode.
  using Ref = std::uint32_t;
  static constexpr Ref kContainer = Ref{1} << 31;
  struct Container {
    std::uint32_t first, count, room : 31, is_dict : 1;  // The range of its items in items_.
  };

  std::string_view bytes_;
  std::deque<Container> containers_;
  std::deque<Ref> items_;  // The items of containers; of a dict, key and value in turn.
  Ref root_ = 0;
};

// A value of a pickle; valid while its Pickle lives.
class PickleValue {
 public:
  // Returns the value as a number or a text. A value of another type gives the fallback, an empty
  // text, or no items. An unsigned integer of 64 bits wraps around: PyTorch writes 2^64 - 1 for a
  // frame without a line number, which is read as -1.
  std::int64_t as_int(std::int64_t fallback = 0) const;
  std::string_view as_text() const;
  // Returns the number of items of a list or tuple, or of members of a dict.
  std::size_t size() const;
  // Returns item `i` of a list or tuple.
  PickleValue operator[](std::size_t i) const;
  bool is_list() const;
  // Returns a dict's member; nullopt if this is no dict or has no such text key. Takes O(size()).
  std::optional<PickleValue> find(std::string_view key) const;

  // Returns the identity of the object: equal for two values that are the same Python object.
  std::uint32_t id() const { return ref_; }

  // True if both refer to the same object.
  friend bool operator==(const PickleValue&, const PickleValue&) = default;

 private:
  friend class Pickle;
  PickleValue(const Pickle& of, Pickle::Ref ref) : of_(&of), ref_(ref) {}
  const Pickle::Container* container() const;

  const Pickle* of_;
  Pickle::Ref ref_;
};

}  // namespace tracestep
