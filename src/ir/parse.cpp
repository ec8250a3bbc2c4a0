#include "ir/parse.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "ir/builder.h"

namespace tracestep {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || c == '+' || c == '/';
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Program whole() {
    if (text_.size() > kMaxProgramBytes) {
      fail_input(where_, "a text of {} bytes; at most {} are read", text_.size(), kMaxProgramBytes);
    }
    Program out = program();
    skip_space();
    if (at_ != text_.size()) fail("text after the closing brace");
    return out;
  }

  OpText call() {
    OpText out{.op = &find_op(word("an op")), .attrs = {}};
    if (accept('{')) out.attrs = attributes(*out.op);
    if (peek() != '\0') fail("text after the op");
    return out;
  }

 private:
  // Fails at the character that is read next.
  [[noreturn]] void fail(const std::string& message) const { fail_at(at_, message); }
  // Fails at the word that was read last.
  [[noreturn]] void fail_word(const std::string& message) const { fail_at(word_, message); }
  // Fails at the line as a whole.
  [[noreturn]] void fail_line(const std::string& message) const { fail_at(line_, message); }
  [[noreturn]] void fail_at(std::size_t at, const std::string& message) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t start = before.rfind('\n');
    const std::size_t column = at - (start == std::string_view::npos ? 0 : start + 1) + 1;
    throw Error(ErrorCode::kInput, fmt::format("{}:{}:{}", where_, line, column), message);
  }
  void skip_space() {
    while (at_ < text_.size()) {
      if (text_[at_] == ';') {  // a comment until the end of the line
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}' expected", c));
  }
  std::string_view peek_word() {
    skip_space();
    std::size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  std::string word(std::string_view what) {
    const std::string_view w = peek_word();
    if (w.empty()) fail(fmt::format("{} expected", what));
    word_ = at_;
    at_ += w.size();
    return std::string(w);
  }
  bool accept_word(std::string_view wanted) {
    if (peek_word() != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  std::string quoted() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      out += text_[at_++];
    }
    if (at_ >= text_.size()) fail("closing quote expected");
    ++at_;
    return out;
  }
  template <class Integer = std::int64_t>
  Integer integer() {
    const std::string w = word("an integer");
    Integer out = 0;
    const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), out);
    if (error != std::errc() || end != w.data() + w.size()) fail_word("'" + w + "' is no integer");
    return out;
  }
  double real() {
    const std::string w = word("a number");
    char* end = nullptr;
    const double out = std::strtod(w.c_str(), &end);
    if (end != w.c_str() + w.size() || std::isnan(out)) fail_word("'" + w + "' is no number");
    return out;
  }
  Dims dims() {
    Dims out;
    expect('[');
    while (!accept(']')) {
      if (!out.empty()) expect(',');
      if (out.rank() == kMaxRank) fail(fmt::format("more than {} dimensions", kMaxRank));
      out.push_back(integer());
    }
    return out;
  }
  DType dtype() {
    const std::string w = word("a dtype");
    const auto found = named<DType>(w);
    if (!found) fail_word("'" + w + "' is no dtype");
    return *found;
  }
  Type type() {
    Type out;
    out.dtype = dtype();
    out.shape = dims();
    for (std::int64_t d : out.shape) {
      if (d < 0) fail("a dimension is negative");
    }
    return out;
  }
  Role role() {
    if (!accept('!')) return Role::kNone;
    const std::string w = word("a role");
    for (Role r : {Role::kGradient, Role::kOptimizerState, Role::kWeightCast, Role::kCache}) {
      if (w == name_of(r)) return r;
    }
    fail_word("'" + w + "' is no role");
  }
  std::string value_name() {
    expect('%');
    return word("a value name");
  }

  // Reads a program, or a region inside of one, from the word "program" to its closing brace.
  Program program() {
    if (!accept_word("program")) fail("'program' expected");
    if (++depth_ > 16) fail("regions are nested too deeply");
    Builder builder(quoted());
    std::map<std::string, Val, std::less<>> names;
    expect('{');
    while (!accept('}')) line(builder, names);
    --depth_;
    return builder.finish();
  }

  using Names = std::map<std::string, Val, std::less<>>;

  void line(Builder& builder, Names& names) {
    const char first = peek();
    line_ = at_;
    if (++lines_ > kMaxProgramLines) fail(fmt::format("more than {} lines", kMaxProgramLines));
    if (first == '%') return node(builder, names);
    const std::string kind = word("a line");
    // The builder finds the mistakes below; this adds the place in the text to its message.
    if (kind == "update") {
      const Val leaf = known(names);
      expect('=');
      const Val value = known(names);
      located([&] { builder.update(leaf, value); });
    } else if (kind == "output") {
      const std::string name = quoted();
      expect('=');
      const Val value = known(names);
      located([&] { builder.output(name, value); });
    } else {
      leaf(builder, names, kind);
    }
  }

  void leaf(Builder& builder, Names& names, const std::string& kind) {
    LeafKind leaf_kind = LeafKind::kNone;
    for (LeafKind k :
         {LeafKind::kInput, LeafKind::kParameter, LeafKind::kState, LeafKind::kConstant}) {
      if (kind == name_of(k)) leaf_kind = k;
    }
    if (leaf_kind == LeafKind::kNone) fail_word("'" + kind + "' starts no line");
    const std::string name = value_name();
    if (name.find_first_not_of("0123456789") == name.npos) {
      fail_word("'" + name + "' is a name for the result of a node");
    }
    expect(':');
    const Type t = type();
    const Role r = role();
    const BlockPart in = part();
    located([&] { names[name] = builder.leaf(leaf_kind, name, t, r, in); });
    if (!accept_word("on")) return;
    if (!accept_word("host")) fail("'host' expected");
    if (leaf_kind == LeafKind::kInput) fail_word("input '" + name + "' cannot lie in host memory");
    builder.set_memory(names[name], Memory::kHost);
  }

  // Reads 'in "BLOCK" at OFFSET of COUNT', if it is there.
  BlockPart part() {
    BlockPart out;
    if (!accept_word("in")) return out;
    out.block = quoted();
    if (out.block.empty()) fail("a block needs a name");
    if (!accept_word("at")) fail("'at' expected");
    out.offset = integer();
    if (!accept_word("of")) fail("'of' expected");
    out.count = integer();
    return out;
  }

  Val known(const Names& names) {
    const std::string name = value_name();
    const auto found = names.find(name);
    if (found == names.end()) fail_word("there is no value %" + name);
    return found->second;
  }

  template <class F>
  void located(F&& f) {
    try {
      f();
    } catch (const Error& e) {
      fail_line(e.what());
    }
  }

  void node(Builder& builder, Names& names) {
    std::vector<std::string> results;
    do results.push_back(value_name());
    while (accept(','));
    expect(':');
    std::vector<Type> types;
    std::vector<Role> roles;
    do {
      types.push_back(type());
      roles.push_back(role());
    } while (accept(','));
    expect('=');
    const std::string op_name = word("an op");
    const OpDef* op = nullptr;
    located([&] { op = &find_op(op_name); });
    expect('(');
    std::vector<Val> operands;
    while (!accept(')')) {
      if (!operands.empty()) expect(',');
      operands.push_back(known(names));
    }
    Attrs attrs;
    const std::size_t line = line_;
    if (accept('{')) attrs = attributes(*op);
    line_ = line;  // a region has lines of its own
    Node like;
    if (accept('#')) like.epoch = integer<int>();
    origins(like);
    auto guard = builder.like(like);
    std::vector<Val> values;
    located([&] { values = builder.call(*op, operands, attrs); });
    bind(builder, names, results, types, roles, values);
  }

  void bind(Builder& builder, Names& names, const std::vector<std::string>& results,
            const std::vector<Type>& types, const std::vector<Role>& roles,
            const std::vector<Val>& values) {
    if (results.size() != values.size() || types.size() != values.size()) {
      fail_line(fmt::format("the op has {} results", values.size()));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (types[i] != values[i].type()) {
        fail_line(fmt::format("%{} is written as {}, inferred as {}", results[i], types[i].str(),
                              values[i].type().str()));
      }
      builder.set_role(values[i], roles[i]);
      if (!names.emplace(results[i], values[i]).second) {
        fail_line("%" + results[i] + " exists already");
      }
    }
  }

  Attrs attributes(const OpDef& op) {
    Attrs out;
    do {
      const std::string name = word("an attribute");
      const AttrDef* def = op.find_attr(name);
      if (def == nullptr) fail_word(fmt::format("{} has no attribute '{}'", op.name, name));
      expect('=');
      out.set(name, attribute(def->kind));
    } while (accept(','));
    expect('}');
    return out;
  }

  AttrValue attribute(AttrKind kind) {
    switch (kind) {
      case AttrKind::kInt: return integer();
      case AttrKind::kReal: return real();
      case AttrKind::kBool: {
        if (accept_word("true")) return true;
        if (accept_word("false")) return false;
        fail("true or false expected");
      }
      case AttrKind::kText: return quoted();
      case AttrKind::kDType: return dtype();
      case AttrKind::kInts: return dims();
      case AttrKind::kRegion: return std::make_shared<const Program>(program());
    }
    fail("unknown attribute kind");
  }

  void origins(Node& node) {
    if (accept('@')) {
      do {
        Origin origin;
        origin.path = word("a path");
        if (origin.path == ".") origin.path.clear();
        const std::string phase = word("a phase");
        const auto found = named<Phase>(phase);
        if (!found) fail_word("'" + phase + "' is no phase");
        origin.phase = *found;
        location(origin);
        node.origins.edit().push_back(std::move(origin));
      } while (accept('|'));
    }
    if (accept_word("by")) node.made_by = word("a pass");
    if (node.origins.empty()) node.origins.edit().emplace_back();
  }

  // Reads "file:line", a word followed directly by a colon, if it is there.
  void location(Origin& origin) {
    const std::string_view w = peek_word();
    if (w.empty() || at_ + w.size() >= text_.size() || text_[at_ + w.size()] != ':') return;
    origin.file = std::string(w);
    at_ += w.size() + 1;
    origin.line = integer<int>();
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;    // the next character
  std::size_t word_ = 0;  // where the last word began
  std::size_t line_ = 0;  // where the line that is being read began
  int depth_ = 0;
  std::size_t lines_ = 0;
};

}  // namespace

Program parse_program(std::string_view text, const std::string& where) {
  return Parser(text, where).whole();
}

OpText parse_call(std::string_view text, const About& where) {
  try {
    return Parser(text, where.text).call();
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage, where, fmt::format("\"{}\": {}", text, error.message()),
                error.hint());
  }
}

}  // namespace tracestep
