#include "lab/report/unpickle.h"

#include <bit>
#include <optional>

#include "base/error.h"

namespace tracestep {
namespace {

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  PickleRef run() {
    for (;;) {
      const auto op = static_cast<unsigned char>(next());
      if (op == '.') return pop();
      step(op);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    fail_input(where_, "byte {}: {}", at_, what);
  }

  char next() { return take(1)[0]; }
  std::string_view take(std::size_t n) {
    if (n > bytes_.size() - at_) fail("the file ends in the middle of a value");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  std::uint64_t number(int n) {
    const std::string_view bytes = take(static_cast<std::size_t>(n));
    std::uint64_t out = 0;
    for (int i = n - 1; i >= 0; --i) {
      out = out << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
    }
    return out;
  }

  template <class T>
  void push(T value) {
    stack_.push_back(std::make_shared<PickleValue>(PickleValue{std::move(value)}));
  }
  PickleRef pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    PickleRef out = std::move(stack_.back());
    stack_.pop_back();
    return out;
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleRef& top() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    return stack_.back();
  }

  PickleValue::List since_mark() {
    if (marks_.empty()) fail("there is no mark");
    PickleValue::List out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                          stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  PickleValue::List last(std::size_t n) {
    PickleValue::List out(n);
    while (n > 0) out[--n] = pop();
    return out;
  }

  template <class T>
  T& container(const char* what) {
    T* const found = std::get_if<T>(&top()->data);
    if (found == nullptr) fail(std::string("something is added to what is no ") + what);
    return *found;
  }
  void append(PickleValue::List items) {
    auto& list = container<PickleValue::List>("list");
    for (PickleRef& item : items) list.push_back(std::move(item));
  }
  void set(PickleValue::List items) {
    if (items.size() % 2 != 0) fail("a key without a value");
    auto& dict = container<PickleValue::Dict>("dict");
    for (std::size_t i = 0; i < items.size(); i += 2) dict.emplace_back(items[i], items[i + 1]);
  }

  // Two's complement of `n` bytes.
  void signed_number(std::size_t n) {
    if (n > 8) fail("an integer of more than 64 bits");
    if (n == 0) return push(std::int64_t{0});
    std::uint64_t bits = number(static_cast<int>(n));
    if (n < 8 && (bits >> (8 * n - 1) & 1) != 0) bits |= ~std::uint64_t{0} << (8 * n);
    push(static_cast<std::int64_t>(bits));
  }
  void real() {
    std::uint64_t bits = 0;
    for (char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
    push(std::bit_cast<double>(bits));
  }
  void text(std::size_t n) { push(std::string(take(n))); }
  void fetch(std::uint64_t memo) {
    const auto found = memo_.find(memo);
    if (found == memo_.end()) fail("something is fetched that was not stored");
    stack_.push_back(found->second);
  }

  void step(unsigned char op) {
    switch (op) {
      case 0x80:  // protocol
        if (number(1) > 5) fail("a protocol newer than 5");
        return;
      case 0x95: take(8); return;  // frame
      case 'N': return push(std::monostate{});
      case 0x88: return push(true);
      case 0x89: return push(false);
      case 'K': return push(static_cast<std::int64_t>(number(1)));
      case 'M': return push(static_cast<std::int64_t>(number(2)));
      case 'J': return signed_number(4);
      case 0x8a: return signed_number(number(1));
      case 'G': return real();
      case 'X': return text(number(4));
      case 0x8c: return text(number(1));
      case 0x8d: return text(number(8));
      default: return step_container(op);
    }
  }

  void step_container(unsigned char op) {
    switch (op) {
      case ']':
      case ')': return push(PickleValue::List{});
      case '}': return push(PickleValue::Dict{});
      case '(': return marks_.push_back(stack_.size());
      case 'a': {
        PickleValue::List one = last(1);
        return append(std::move(one));
      }
      case 'e': {
        PickleValue::List items = since_mark();
        return append(std::move(items));
      }
      case 's': {
        PickleValue::List items = last(2);
        return set(std::move(items));
      }
      case 'u': {
        PickleValue::List items = since_mark();
        return set(std::move(items));
      }
      case 'l':
      case 't': return push(since_mark());
      case 0x85: return push(last(1));
      case 0x86: return push(last(2));
      case 0x87: return push(last(3));
      case 'q': return remember(number(1));
      case 'r': return remember(number(4));
      case 0x94: return remember(memo_.size());
      case 'h': return fetch(number(1));
      case 'j': return fetch(number(4));
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

  void remember(std::uint64_t memo) { memo_[memo] = top(); }

  std::string_view bytes_;
  std::string where_;
  std::size_t at_ = 0;
  PickleValue::List stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PickleRef> memo_;
};

}  // namespace

const PickleValue* PickleValue::find(std::string_view key) const {
  const Dict* const dict = std::get_if<Dict>(&data);
  if (dict == nullptr) return nullptr;
  for (const auto& [name, value] : *dict) {
    if (name->as_text() == key) return value.get();
  }
  return nullptr;
}

std::int64_t PickleValue::as_int(std::int64_t fallback) const {
  const auto* const found = std::get_if<std::int64_t>(&data);
  return found == nullptr ? fallback : *found;
}

std::string_view PickleValue::as_text() const {
  const auto* const found = std::get_if<std::string>(&data);
  return found == nullptr ? std::string_view() : *found;
}

const PickleValue::List& PickleValue::items() const {
  static const List none;
  const auto* const found = std::get_if<List>(&data);
  return found == nullptr ? none : *found;
}

PickleRef unpickle(std::string_view bytes, const std::string& where) {
  if (bytes.size() < 2 || bytes[0] != '\x80') {
    fail_input(where, "this is no pickle of protocol 2 or later");
  }
  return Reader(bytes, where).run();
}

}  // namespace tracestep
