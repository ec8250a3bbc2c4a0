// The only file that knows PCRE2.
#include "train/text_pattern.h"

#include <algorithm>
#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostSourceBytes = 16384;
constexpr std::uint32_t kMostNested = 50, kMostHeapKiB = 256 << 10;
// Expressions of published tokenizers go back over a run of blanks once; one that does so again and
// again is stopped.
constexpr std::size_t kLeastSteps = 200'000, kStepsPerByte = 20;

constexpr std::string_view kCategories =
    " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc "
    "Cf "
    "Cn Co Cs ";

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// An expression of Oniguruma's syntax as one of PCRE2's that matches the same.
class Translation {
 public:
  Translation(std::string_view source, const std::string& where) : rest_(source), where_(where) {
    while (!rest_.empty()) {
      if (rest_.front() == '\\') {
        escape();
      } else if (in_class_) {
        inside_class();
      } else {
        outside();
      }
    }
  }

  std::string take() { return std::move(out_); }

 private:
  [[noreturn]] void refuse(std::size_t size) const {
    fail_input("tokenizer", "{}: \"{}\" in its expression is not taken", where_,
               rest_.substr(0, size));
  }

  void copy(std::size_t size) {
    out_ += rest_.substr(0, size);
    rest_.remove_prefix(size);
  }

  void replace(std::size_t size, std::string_view by) {
    out_ += by;
    rest_.remove_prefix(size);
  }

  // PCRE2's own \s has U+180E, which is no white space any more; \d is said by its category.
  void escape() {
    if (rest_.size() < 2) refuse(1);
    const char c = rest_[1];
    if (c == 's') return replace(2, "\\p{White_Space}");
    if (c == 'S') return replace(2, "\\P{White_Space}");
    if (c == 'd') return replace(2, "\\p{Nd}");
    if (c == 'p' || c == 'P') return category();
    const bool is_sign = static_cast<unsigned char>(c) < 0x80 && !is_letter(c) && !is_digit(c);
    if (!is_sign && std::string_view("rntf").find(c) == std::string_view::npos) refuse(2);
    copy(2);
  }

  void category() {
    const std::size_t close = rest_.find('}');
    if (rest_.size() < 4 || rest_[2] != '{' || close == rest_.npos || close < 4) refuse(3);
    const std::string name = fmt::format(" {} ", rest_.substr(3, close - 3));
    if (kCategories.find(name) == kCategories.npos) refuse(close + 1);
    copy(close + 1);
  }

  void inside_class() {
    if (rest_.front() == '[' || rest_.starts_with("&&")) refuse(2);
    in_class_ = rest_.front() != ']';
    copy(1);
  }

  void outside() {
    switch (rest_.front()) {
      case '[':
        copy(rest_.starts_with("[^") ? 2 : 1);
        if (rest_.starts_with(']')) refuse(1);
        in_class_ = true;
        return;
      case '(': return group();
      case '{': return repeat();
      case '^':
      case '$': refuse(1);
      default: copy(1);
    }
  }

  void group() {
    if (rest_.starts_with("(*")) refuse(2);
    if (!rest_.starts_with("(?")) return copy(1);
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (rest_.starts_with(known)) return copy(known.size());
    }
    // Beyond plain letters the libraries fold cases differently.
    constexpr std::string_view kCaseless = "(?i:";
    if (!rest_.starts_with(kCaseless)) refuse(3);
    const std::size_t close = std::min(rest_.find(')'), rest_.size());
    const std::string_view inside = rest_.substr(kCaseless.size(), close - kCaseless.size());
    if (!std::ranges::all_of(inside, [](char c) {
          return is_letter(c) || std::string_view("'|[]").find(c) != std::string_view::npos;
        })) {
      refuse(close);
    }
    copy(close);
  }

  // {n}, {n,} and {n,m}; with a sign behind it, the two libraries read it differently.
  void repeat() {
    std::size_t at = 1;
    while (at < rest_.size() && (is_digit(rest_[at]) || (at > 1 && rest_[at] == ','))) ++at;
    if (at == 1 || at == rest_.size() || rest_[at] != '}') refuse(at);
    if (at + 1 < rest_.size() && (rest_[at + 1] == '+' || rest_[at + 1] == '?')) refuse(at + 2);
    copy(at + 1);
  }

  std::string_view rest_;
  const std::string& where_;
  std::string out_;
  bool in_class_ = false;
};

std::string message_of(int error) {
  std::array<char, 256> text{};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  return text.data();
}

template <auto kFree>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    kFree(p);
  }
};

// What a search writes to, one for each thread: a match has one pair of offsets here.
struct Scratch {
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> data{
      pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context{
      pcre2_match_context_create(nullptr)};

  Scratch() {
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_heap_limit(context.get(), kMostHeapKiB);
  }
};

}  // namespace

TextPattern TextPattern::literal(std::string text) {
  TextPattern out;
  out.literal_ = std::move(text);
  TRACESTEP_CHECK(!out.literal_.empty(), "a literal of no length");
  return out;
}

TextPattern TextPattern::expression(std::string_view source, const std::string& where) {
  if (source.size() > kMostSourceBytes) {
    fail_input("tokenizer", "{}: its expression has {} bytes, more than {}", where, source.size(),
               kMostSourceBytes);
  }
  const std::string text = Translation(source, where).take();
  const std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kMostNested);
  int error = 0;
  std::size_t at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get());
  if (code == nullptr) {
    fail_input("tokenizer", "{}: its expression is malformed: {}", where, message_of(error));
  }
  TextPattern out;
  out.code_ = std::shared_ptr<const void>(code, [code](const void*) { pcre2_code_free(code); });
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0) {
    fail_input("tokenizer", "{}: its expression may match nothing", where);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, the search is slower
  return out;
}

std::optional<TextPattern::Match> TextPattern::find(std::string_view text, std::size_t from) const {
  if (code_ == nullptr) {
    const std::size_t at = text.find(literal_, from);
    if (at == text.npos) return std::nullopt;
    return Match{at, at + literal_.size()};
  }
  thread_local Scratch scratch;
  const std::size_t steps = kLeastSteps + kStepsPerByte * (text.size() - from);
  pcre2_set_match_limit(scratch.context.get(),
                        static_cast<std::uint32_t>(std::min<std::size_t>(steps, UINT32_MAX)));
  const auto search = [&](std::uint32_t options) {
    return pcre2_match(static_cast<const pcre2_code*>(code_.get()),
                       reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       options | PCRE2_NO_UTF_CHECK, scratch.data.get(), scratch.context.get());
  };
  int found = search(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = search(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    fail_input("tokenizer", "its expression stops at byte {} of {} of a text: {}", from,
               text.size(), message_of(found));
  }
  const std::size_t* ends = pcre2_get_ovector_pointer(scratch.data.get());
  // Looking behind, a match can begin before itself.
  if (ends[1] <= ends[0]) fail_input("tokenizer", "its expression matches nothing");
  return Match{ends[0], ends[1]};
}

}  // namespace tracestep
