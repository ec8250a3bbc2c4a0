// The only file that uses the PCRE2 library.
#include "tokens/text_pattern.h"

#include <algorithm>
#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostSourceBytes = 16384;
constexpr std::uint32_t kMostNested = 50, kMostHeapKiB = 256 << 10;
// A search may take kLeastSteps, and kStepsPerByte more for each byte. Expressions of published
// tokenizers go back over a run of blanks once; one that does so again and again is stopped.
constexpr std::size_t kLeastSteps = 200'000, kStepsPerByte = 20;

// The pattern of a part that Oniguruma and PCRE2 read alike: a sign, an escape, a class, the begin
// of a group, a repeat. It has only plain letters in (?i:…), as the two fold the cases of others
// differently, and no + or ? after a repeat in braces, which means another thing to each.
constexpr std::string_view kTaken =
    R"((?x) (?<escape> \\ (?: [sSdrntf] | [^A-Za-z0-9\x80-\x{10ffff}] | [pP] \{ (?: L[ultmo]? |
         M[nce]? | N[dlo]? | P[cdseifo]? | S[mcko]? | Z[slp]? | C[cfnos]? ) \} ) )
      | \[ \^? (?: [^][\\&] | & (?! & ) | (?&escape) )++ \]
      | \( (?: \? (?: [:=!>] | <[=!] | i: (?= [][A-Za-z'|]* \) ) ) | (?! [?*] ) )
      | \{ [0-9]++ (?: , [0-9]*+ )? \} (?! [+?] )
      | [^][\\({}^$])";

// Rewrites \s, \S and \d for PCRE2, whose \s includes U+180E, which is no white space any more.
std::string translated(std::string_view source) {
  std::string out;
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\\') {
      out += source[at];
      continue;
    }
    const char c = source[++at];
    out += c == 's'   ? "\\p{White_Space}"
           : c == 'S' ? "\\P{White_Space}"
           : c == 'd' ? "\\p{Nd}"
                      : std::string{'\\', c};
  }
  return out;
}

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

// The buffers of a search, which each thread has for itself. A match has one pair of offsets here.
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

TextPattern TextPattern::trusted(std::string_view source, const std::string& where) {
  const std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kMostNested);
  int error = 0;
  std::size_t at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &at, context.get());
  if (code == nullptr) {
    fail_input("tokenizer"_field, "{}: its expression is malformed: {}", where, message_of(error));
  }
  TextPattern out;
  out.code_ = std::shared_ptr<const void>(code, [code](const void*) { pcre2_code_free(code); });
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0) {
    fail_input("tokenizer"_field, "{}: its expression may match nothing", where);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, the search is slower
  return out;
}

TextPattern TextPattern::expression(std::string_view source, const std::string& where) {
  if (source.size() > kMostSourceBytes) {
    fail_input("tokenizer"_field, "{}: its expression has {} bytes, more than {}", where,
               source.size(), kMostSourceBytes);
  }
  static const TextPattern part = trusted(kTaken, "parts of expressions");
  for (std::size_t at = 0; at < source.size();) {
    const auto taken = part.find(source, at);
    if (!taken || taken->begin != at) {
      fail_input("tokenizer"_field, "{}: its expression is not taken from \"{}\" on", where,
                 escaped(source.substr(at)));
    }
    at = taken->end;
  }
  return trusted(translated(source), where);
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
    fail_input("tokenizer"_field, "its expression stops at byte {} of {} of a text: {}", from,
               text.size(), message_of(found));
  }
  const std::size_t* ends = pcre2_get_ovector_pointer(scratch.data.get());
  // An assertion that looks behind may end a match before its begin.
  if (ends[1] <= ends[0]) fail_input("tokenizer"_field, "its expression matches nothing");
  return Match{ends[0], ends[1]};
}

std::string exchanged(std::string_view text, std::string_view from, std::string_view by) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size()) {
    out += text.substr(at, found - at);
    out += by;
  }
  out += text.substr(at);
  return out;
}

}  // namespace tracestep
