// A reader of Python's pickle format that takes plain data alone: numbers, text, lists, tuples and
// dicts of protocols 2 to 5. A file that asks for a class or a call is refused, so reading one that
// a stranger wrote runs nothing; nor can it ask for more than a few times its size in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

class PickleValue;

// The values of a file, in lists without pointers: scalars stay in its bytes and containers name
// their items by place, so that no nesting, sharing or self-reference costs stack or leaks.
class Pickle {
 public:
  // Keeps `bytes`, fewer than 2^31 of them. Errors: kInput naming `where` and the byte: a truncated
  // file, an opcode that makes objects, values that need more than 3 times its size in memory.
  Pickle(std::string_view bytes, const std::string& where);

  PickleValue root() const;

 private:
  friend class PickleValue;
  friend class PickleReader;

  // A container when the highest bit is set, else the place of a scalar's opcode.
  using Ref = std::uint32_t;
  static constexpr Ref kContainer = Ref{1} << 31;
  struct Container {
    std::uint32_t first, count, room : 31, is_dict : 1;  // in items_
  };

  std::string_view bytes_;
  std::deque<Container> containers_;
  std::deque<Ref> items_;  // of a dict: key and value in turn
  Ref root_ = 0;
};

// One of them; valid while its Pickle lives.
class PickleValue {
 public:
  // Of another type: the fallback, an empty text, no items.
  std::int64_t as_int(std::int64_t fallback = 0) const;
  std::string_view as_text() const;
  // Items of a list or tuple, members of a dict.
  std::size_t size() const;
  // Item `i` of a list or tuple.
  PickleValue operator[](std::size_t i) const;
  bool is_list() const;
  // nothing: not a dict, or no such text key. Looks at size() members.
  std::optional<PickleValue> find(std::string_view key) const;

  // Whether both are one object.
  friend bool operator==(const PickleValue&, const PickleValue&) = default;

 private:
  friend class Pickle;
  PickleValue(const Pickle& of, Pickle::Ref ref) : of_(&of), ref_(ref) {}
  const Pickle::Container* container() const;

  const Pickle* of_;
  Pickle::Ref ref_;
};

}  // namespace tracestep
