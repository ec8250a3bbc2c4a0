// The options of one command as plain records: `--help`, docs/cli.md and the parser are made from
// them. Each option has the function that reads its values, which checks them strictly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/suggest.h"
#include "base/units.h"

namespace tracestep::cli {

struct OutputOptions;  // cli/options.h

struct Option {
  // Called once for every value, or once with "" for a switch; `flag` is for messages.
  using Read = std::function<void(const std::string& flag, const std::string& text)>;

  std::string group;
  std::string flag;        // "--batch"
  std::string value_name;  // "N"; empty: a switch
  std::string doc;
  Read read;
  int min_values = 1;
  int max_values = 1;
  std::string default_text = {};          // The default for help texts; empty: none is shown.
  std::vector<std::string> offered = {};  // Values that a shell offers for completion.
  // True: the value names a file about all cells together, which is written at the end.
  bool names_one_file = false;
  bool lists_cells = false;  // True: each of its values belongs to some cells only.
  // True: the option concerns a comparison of cells, so a cell by itself cannot have it.
  bool is_of_all_cells = false;
  // Endings of file names: a name with one of them that is given without a flag belongs to this
  // option.
  std::vector<std::string> endings = {};
};

// The texts of the options that were given, by flag; a switch has one empty text.
using GivenOptions = std::map<std::string, std::vector<std::string>>;

// A word without a flag, which its position identifies: "tracestep compare A B".
struct Positional {
  // The name in help texts and messages: "A". "-- COMMAND" stands for all words after "--", which
  // the command receives unchanged.
  std::string name;
  std::string doc;
  std::function<void(const std::string& name, const std::string& text)> read;
  bool is_required = true;

  bool is_command() const { return name.starts_with("-- "); }
};

// A range of numbers, for messages and checks, and the meaning of "k" after a number.
struct IntRange {
  std::int64_t min = 1;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  Thousand thousand = Thousand::kDecimal;
};
struct RealRange {
  double min = 0.0;
  double max = std::numeric_limits<double>::max();
};

// The words that the help adds if "k" means 1024 and not a thousand.
std::string help_of_thousand(Thousand thousand);

// Collects the options of a command. The variable `out` of an option provides the default in help
// texts, which is its value when the option is added. If the flag would refuse that value, it means
// "not given".
class OptionSet {
 public:
  // Sets the heading in help texts of the options that follow.
  void group(std::string title) { group_ = std::move(title); }

  void toggle(std::string flag, bool& out, std::string doc);
  void value(std::string flag, std::string value_name, std::string doc, Option::Read read,
             std::string default_text = {});
  // Adds a flag with `min` to `max` values as separate words.
  void values(std::string flag, std::string value_name, int min, int max, std::string doc,
              Option::Read read);
  void text(std::string flag, std::string value_name, std::string& out, std::string doc);
  void path(std::string flag, std::string value_name, std::filesystem::path& out, std::string doc);
  void real(std::string flag, double& out, RealRange range, std::string doc);

  // Adds a flag that sets `out`, of any integer type or an optional one.
  template <class T>
  void integer(std::string flag, T& out, IntRange range, std::string doc) {
    std::string shown;
    if constexpr (std::is_integral_v<T>)
      shown = default_text(static_cast<std::int64_t>(out), range);
    value(
        std::move(flag), "N", doc + help_of_thousand(range.thousand),
        [&out, range](const std::string& where, const std::string& text) {
          out = static_cast<typename ValueOf<T>::type>(read_count(where, text, range));
        },
        std::move(shown));
  }
  // Adds a flag with integers separated by commas, such as "--context 128,256".
  void integers(std::string flag, std::vector<std::int64_t>& out, IntRange range, std::string doc);
  // Adds a flag that takes one of `names`; the flag of choices() takes a list of them.
  void choice(std::string flag, std::string& out, std::vector<std::string> names, std::string doc);
  void choices(std::string flag, std::vector<std::string>& out, std::vector<std::string> names,
               std::string doc);

  // Sets the values that a shell offers for the option added last.
  void offer(std::vector<std::string> values) { options_.back().offered = std::move(values); }

  // Says that the option added last sets this field. `typed`: a text that will hold the flag by
  // which the field was given, where it has several; errors about the field then name that one.
  void sets_field(const std::string& name, std::shared_ptr<const std::string> typed = {}) {
    fields_[name] = {options_.back().flag, std::move(typed)};
  }

  // Marks the option added last: its value names a file about all cells together.
  void names_one_file() { options_.back().names_one_file = true; }

  // Marks the option added last: each of its values belongs to some cells, which do not depend on
  // the other values.
  void lists_cells() { options_.back().lists_cells = true; }

  // Marks the option added last: it concerns all rows together, so cells cannot be measured one by
  // one.
  void is_of_all_cells() { options_.back().is_of_all_cells = true; }

  // Sets the endings of file names that belong to the option added last if they are given without a
  // flag.
  void takes_files(std::vector<std::string> endings) {
    options_.back().endings = std::move(endings);
  }

  // Also stores in `out`, by flag, the texts that are read from now on for the options added up to
  // here.
  void record(GivenOptions& out);

  // Adds the next word without a flag.
  void positional(std::string name, std::string& out, std::string doc, bool is_required = true);

  const std::vector<Option>& options() const { return options_; }
  const Option* find(std::string_view flag) const;  // nullptr: there is none
  const std::vector<Positional>& positionals() const { return positionals_; }

  // The flag of a field ("--token-dtype" for "token_dtype"); empty if the command has none.
  std::string flag_of(std::string_view field) const;
  // Replaces the marks of options in `text` by flags; an option that the command lacks keeps its
  // name.
  std::string in_flags(std::string_view text) const;
  // The same error with flags of this command in place of the field names that lower layers use.
  // The error is about the flag that was typed, where its field has several.
  Error in_flags(const Error& error) const;
  // Applies in_flags() to all help texts; called once, when all options are added.
  void show_flags();

  // The variable of add_output_options(); nullptr: the command writes no tables.
  OutputOptions* output() const { return output_; }
  void writes_to(OutputOptions& output) { output_ = &output; }

 private:
  static std::string default_text(std::int64_t value, IntRange range);
  static std::int64_t read_count(const std::string& where, const std::string& text, IntRange range);
  static std::string joined(std::span<const std::string> names, std::string_view separator);

  template <class T>
  struct ValueOf {
    using type = T;
  };
  template <class T>
  struct ValueOf<std::optional<T>> {
    using type = T;
  };

  struct FieldFlag {
    std::string flag;
    std::shared_ptr<const std::string> typed;
  };

  std::string group_ = "Options";
  std::vector<Option> options_;
  std::vector<Positional> positionals_;
  OutputOptions* output_ = nullptr;
  std::map<std::string, FieldFlag, std::less<>> fields_;  // by name
};

// Prints how a number with a binary "k" was read: "--context 4k is 4096".
void say_if_scaled(const std::string& flag, const std::string& given, const std::string& read);

// Splits "a,b" at the commas. Throws Error{kUsage} naming `where` if a part is empty or occurs
// twice.
std::vector<std::string> split_list(const std::string& where, std::string_view text);

}  // namespace tracestep::cli
