// The options of one command as plain records: `--help`, docs/cli.md and the parser are made from
// them. Each option has the function that reads its values, which checks them strictly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
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
  std::string default_text = {};          // default for help texts; empty: not shown
  std::vector<std::string> offered = {};  // values that a shell completes
  bool names_one_file = false;            // of all cells together, written at the end
  bool lists_cells = false;               // its values are those of cells
  bool is_of_all_cells = false;           // not of one by itself: a comparison of them
  std::vector<std::string> endings = {};  // of names that are meant for it where they have no flag
};

// The texts of the options that were given, by flag: once "" for a switch.
using GivenOptions = std::map<std::string, std::vector<std::string>>;

// A word without a flag, identified by its position: "tracestep compare A B".
struct Positional {
  // "A": its name in help texts and messages. "-- COMMAND": the first of the words after "--",
  // which are all left to the command.
  std::string name;
  std::string doc;
  std::function<void(const std::string& name, const std::string& text)> read;
  bool is_required = true;

  bool is_command() const { return name.starts_with("-- "); }
};

// A range of numbers for messages and checks, and what "k" means behind one of them.
struct IntRange {
  std::int64_t min = 1;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  Thousand thousand = Thousand::kDecimal;
};
struct RealRange {
  double min = 0.0;
  double max = std::numeric_limits<double>::max();
};

// The words that a flag's help adds where "k" is not a thousand.
std::string help_of_thousand(Thousand thousand);

// An option's variable `out` also provides the default in help texts: its value at that time,
// unless the flag would refuse that value, which then means "not given".
class OptionSet {
 public:
  // The heading in help texts of the options that follow.
  void group(std::string title) { group_ = std::move(title); }

  void toggle(std::string flag, bool& out, std::string doc);
  void value(std::string flag, std::string value_name, std::string doc, Option::Read read,
             std::string default_text = {});
  // A flag with `min` to `max` values as separate words.
  void values(std::string flag, std::string value_name, int min, int max, std::string doc,
              Option::Read read);
  void text(std::string flag, std::string value_name, std::string& out, std::string doc);
  void path(std::string flag, std::string value_name, std::filesystem::path& out, std::string doc);
  void real(std::string flag, double& out, RealRange range, std::string doc);

  // `out`: any integer type, or an optional one.
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
  // "--context 128,256".
  void integers(std::string flag, std::vector<std::int64_t>& out, IntRange range, std::string doc);
  // The flag takes one of `names`; choices() takes a list of them.
  void choice(std::string flag, std::string& out, std::vector<std::string> names, std::string doc);
  void choices(std::string flag, std::vector<std::string>& out, std::vector<std::string> names,
               std::string doc);

  // The values of the option added last that a shell completes.
  void offer(std::vector<std::string> values) { options_.back().offered = std::move(values); }

  // The option added last names a file of all cells together.
  void names_one_file() { options_.back().names_one_file = true; }

  // The values of the option added last are those of cells: these do not depend on the others.
  void lists_cells() { options_.back().lists_cells = true; }

  // The option added last concerns all rows together: cells cannot be measured one by one.
  void is_of_all_cells() { options_.back().is_of_all_cells = true; }

  // The endings of files that the option added last is for.
  void takes_files(std::vector<std::string> endings) {
    options_.back().endings = std::move(endings);
  }

  // From now on what is read for the options added so far also goes to `out`, by flag.
  void record(GivenOptions& out);

  // The next word without a flag.
  void positional(std::string name, std::string& out, std::string doc, bool is_required = true);

  const std::vector<Option>& options() const { return options_; }
  const Option* find(std::string_view flag) const;  // nullptr: there is none
  const std::vector<Positional>& positionals() const { return positionals_; }

  // The flag of a field ("--token-dtype" for "token_dtype"); empty: the command has none for it.
  std::string flag_of(std::string_view field) const;
  // `text` with flags for its marks of options; an option that the command lacks keeps its name.
  std::string in_flags(std::string_view text) const;
  // An error of the lower layers, which name fields, in the words of the command line.
  Error in_flags(const Error& error) const;
  // Does that to all help texts: called once, when all options are there.
  void show_flags();

  // Where the options of add_output_options() are kept; nullptr: the command writes no tables.
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

  std::string group_ = "Options";
  std::vector<Option> options_;
  std::vector<Positional> positionals_;
  OutputOptions* output_ = nullptr;
};

// Says what a number with a binary "k" was read as: "--context 4k is 4096".
void say_if_scaled(const std::string& flag, const std::string& given, const std::string& read);

// "a,b" as its parts. Error{kUsage} naming `where` when a part is empty or there twice.
std::vector<std::string> split_list(const std::string& where, std::string_view text);

}  // namespace tracestep::cli
