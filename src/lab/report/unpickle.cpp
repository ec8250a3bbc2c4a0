#include "lab/report/unpickle.h"

#include <vector>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::size_t kMemoryPerByte = 3, kMemoryBytes = std::size_t{1} << 20;

// Reads an unsigned number from bytes, the lowest first.
std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t out = 0;
  for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
    out = out << 8 | static_cast<unsigned char>(*byte);
  }
  return out;
}

// Reads a number in two's complement from bytes, the lowest first.
std::int64_t signed_number(std::string_view bytes) {
  std::uint64_t bits = little_endian(bytes);
  const std::size_t n = bytes.size();
  if (n > 0 && n < 8 && (bits >> (8 * n - 1) & 1) != 0) bits |= ~std::uint64_t{0} << (8 * n);
  return static_cast<std::int64_t>(bits);
}

// Returns how many bytes the length has that precedes this opcode's text; 0: it makes no text.
std::size_t length_bytes(unsigned char op) {
  return op == 'X' ? 4 : op == 0x8c ? 1 : op == 0x8d ? 8 : 0;
}

}  // namespace

class PickleReader {
 public:
  PickleReader(Pickle& out, const std::string& where)
      : out_(out),
        bytes_(out.bytes_),
        where_(where),
        memory_left_(kMemoryPerByte * out.bytes_.size() + kMemoryBytes) {}

  Pickle::Ref run() {
    for (;;) {
      opcode_ = at_;
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') return pop();
      step(op);
    }
  }

 private:
  using Ref = Pickle::Ref;

  [[noreturn]] void fail(const std::string& what) const {
    fail_input(where_, "byte {}: {}", at_, what);
  }
  void charge(std::size_t bytes) {
    if (bytes > memory_left_) {
      fail(fmt::format("the values need more than {} times the size of the file in memory",
                       kMemoryPerByte));
    }
    memory_left_ -= bytes;
  }

  std::string_view take(std::size_t n) {
    if (n > bytes_.size() - at_) fail("the file ends in the middle of a value");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  std::uint64_t number(std::size_t n) { return little_endian(take(n)); }

  // Pushes a value on the stack, whose growth counts as memory (charge()).
  void push(Ref ref) {
    if (stack_.size() == stack_.capacity()) {
      charge(sizeof(Ref) * (stack_.empty() ? 1 : stack_.size()));
    }
    stack_.push_back(ref);
  }
  // Pushes the scalar of the current opcode, whose operand has `operand_bytes`.
  void push_scalar(std::size_t operand_bytes) {
    take(operand_bytes);
    push(static_cast<Ref>(opcode_));
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Ref top() const {
    if (stack_.size() <= floor()) fail("the stack is empty");
    return stack_.back();
  }
  Ref pop() {
    const Ref out = top();
    stack_.pop_back();
    return out;
  }
  std::size_t last(std::size_t n) const {
    if (stack_.size() < floor() + n) fail("the stack is empty");
    return stack_.size() - n;
  }
  void mark() {
    charge(2 * sizeof(Ref));
    marks_.push_back(static_cast<Ref>(stack_.size()));
  }
  std::size_t take_mark() {
    if (marks_.empty()) fail("there is no mark");
    const std::size_t out = marks_.back();
    marks_.pop_back();
    return out;
  }

  // Makes an empty dict, list or tuple, and returns its index as a Ref.
  Ref make(bool is_dict) {
    charge(sizeof(Pickle::Container));
    out_.containers_.push_back({0, 0, 0, is_dict});
    return Pickle::kContainer | static_cast<Ref>(out_.containers_.size() - 1);
  }

  // Moves what lies on the stack from `first` on to the end of a container.
  void add(Pickle::Container& to, std::size_t first) {
    auto& items = out_.items_;
    const auto more = static_cast<std::uint32_t>(stack_.size() - first);
    const bool is_last = to.first + to.room == items.size();
    if (to.count + more > to.room) {
      // Only the last container can grow where it is; others move, twice as large.
      const std::uint32_t room = is_last || to.count == 0 ? to.count + more : 2 * to.count + more;
      const std::size_t new_first = is_last ? to.first : items.size();
      charge(sizeof(Ref) * (new_first + room - items.size()));
      items.resize(new_first + room);
      for (std::uint32_t i = 0; new_first != to.first && i < to.count; ++i) {
        items[new_first + i] = items[to.first + i];
      }
      to.first = static_cast<std::uint32_t>(new_first);
      to.room = room & ~Pickle::kContainer;
    }
    for (std::size_t i = first; i < stack_.size(); ++i) items[to.first + to.count++] = stack_[i];
    stack_.resize(first);
  }

  // Pushes a tuple or list of what lies on the stack from `first` on.
  void collect(std::size_t first) {
    const Ref made = make(false);
    add(out_.containers_.back(), first);
    push(made);
  }

  // Adds what lies on the stack from `first` on to the container below it.
  void extend(bool is_dict, std::size_t first) {
    const std::size_t count = stack_.size() - first;
    if (is_dict && count % 2 != 0) fail("a key without a value");
    if (first <= floor()) fail("the stack is empty");
    const Ref below = stack_[first - 1];
    Pickle::Container* const to =
        below < Pickle::kContainer ? nullptr : &out_.containers_[below & ~Pickle::kContainer];
    if (to == nullptr || to->is_dict != is_dict) {
      fail(std::string("something is added to what is no ") + (is_dict ? "dict" : "list"));
    }
    add(*to, first);
  }

  // Stores the value on top of the stack in the memo, at `place`. Writers number what they store
  // from 0 on.
  void remember(std::uint64_t place) {
    const Ref value = top();
    if (place > memo_.size()) fail("something is stored in a place out of order");
    if (place < memo_.size()) {
      memo_[place] = value;
      return;
    }
    charge(sizeof(Ref));
    memo_.push_back(value);
  }
  void fetch(std::uint64_t place) {
    if (place >= memo_.size()) fail("something is fetched that was not stored");
    push(memo_[place]);
  }

  // Carries out one opcode: reads its operand, and changes stack, containers and memo.
  void step(unsigned char op) {
    switch (op) {
      case 0x80:  // protocol
        if (number(1) > 5) fail("a protocol newer than 5");
        return;
      case 0x95: take(8); return;  // frame
      case 'N':
      case 0x88:
      case 0x89: return push_scalar(0);
      case 'K': return push_scalar(1);
      case 'M': return push_scalar(2);
      case 'J': return push_scalar(4);
      case 'G': return push_scalar(8);
      case 0x8a: {
        const std::uint64_t n = number(1);
        // An unsigned integer of 64 bits has a ninth byte, which is 0.
        const bool is_unsigned = n == 9 && bytes_.size() - at_ >= n && bytes_[at_ + 8] == '\0';
        if (n > 8 && !is_unsigned) fail("an integer of more than 64 bits");
        return push_scalar(n);
      }
      case 'X':
      case 0x8c:
      case 0x8d: return push_scalar(number(length_bytes(op)));
      case 'q': return remember(number(1));
      case 'r': return remember(number(4));
      case 0x94: return remember(memo_.size());
      case 'h': return fetch(number(1));
      case 'j': return fetch(number(4));
      default: return step_container(op);
    }
  }

  void step_container(unsigned char op) {
    switch (op) {
      case ']':
      case ')': return push(make(false));
      case '}': return push(make(true));
      case '(': return mark();
      case 'a': return extend(false, last(1));
      case 'e': return extend(false, take_mark());
      case 's': return extend(true, last(2));
      case 'u': return extend(true, take_mark());
      case 'l':
      case 't': return collect(take_mark());
      case 0x85: return collect(last(1));
      case 0x86: return collect(last(2));
      case 0x87: return collect(last(3));
      case 'c':
      case 'R':
      case 'b':
      case 'i':
      case 'o':
      case 0x81:
      case 0x92:
      case 0x93: fail("the file asks for a Python object or a call; only plain data is read");
      default: fail(fmt::format("opcode {:#04x} is not one of plain data", op));
    }
  }

  Pickle& out_;
  std::string_view bytes_;
  const std::string& where_;
  std::size_t memory_left_;
  std::size_t at_ = 0, opcode_ = 0;
  std::vector<Ref> stack_, marks_;
  std::deque<Ref> memo_;
};

Pickle::Pickle(std::string_view bytes, const std::string& where) : bytes_(bytes) {
  if (bytes.size() < 2 || bytes[0] != '\x80') {
    fail_input(where, "this is no pickle of protocol 2 or later");
  }
  if (bytes.size() >= kContainer) fail_input(where, "a pickle of {} bytes", bytes.size());
  root_ = PickleReader(*this, where).run();
}

PickleValue Pickle::root() const {
  return {*this, root_};
}

const Pickle::Container* PickleValue::container() const {
  if (ref_ < Pickle::kContainer) return nullptr;
  return &of_->containers_[ref_ & ~Pickle::kContainer];
}

bool PickleValue::is_list() const {
  const auto* const held = container();
  return held != nullptr && !held->is_dict;
}

std::size_t PickleValue::size() const {
  const auto* const held = container();
  if (held == nullptr) return 0;
  return held->is_dict ? held->count / 2 : held->count;
}

PickleValue PickleValue::operator[](std::size_t i) const {
  TRACESTEP_CHECK(is_list() && i < size(), "item {} of {}", i, size());
  return {*of_, of_->items_[container()->first + i]};
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  const auto* const held = container();
  if (held == nullptr || !held->is_dict) return std::nullopt;
  for (std::uint32_t i = held->first; i < held->first + held->count; i += 2) {
    if (PickleValue(*of_, of_->items_[i]).as_text() == key) {
      return PickleValue(*of_, of_->items_[i + 1]);
    }
  }
  return std::nullopt;
}

std::int64_t PickleValue::as_int(std::int64_t fallback) const {
  if (container() != nullptr) return fallback;
  const std::string_view at = of_->bytes_.substr(ref_);
  switch (static_cast<unsigned char>(at[0])) {
    case 'K': return static_cast<std::int64_t>(little_endian(at.substr(1, 1)));
    case 'M': return static_cast<std::int64_t>(little_endian(at.substr(1, 2)));
    case 'J': return signed_number(at.substr(1, 4));
    case 0x8a:
      return signed_number(at.substr(2, at[1] == 9 ? 8 : static_cast<unsigned char>(at[1])));
    default: return fallback;
  }
}

std::string_view PickleValue::as_text() const {
  if (container() != nullptr) return {};
  const std::string_view at = of_->bytes_.substr(ref_);
  const std::size_t n = length_bytes(static_cast<unsigned char>(at[0]));
  if (n == 0) return {};
  return at.substr(1 + n, little_endian(at.substr(1, n)));
}

}  // namespace tracestep
