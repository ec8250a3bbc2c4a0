#include "cli/option_set.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/suggest.h"
#include "spec/spec_field.h"

namespace tracestep::cli {
namespace {

const std::string& not_empty(const std::string& where, const std::string& text) {
  if (text.empty()) fail_usage(where, "the value is empty");
  return text;
}

}  // namespace

std::vector<std::string> split_list(const std::string& where, std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    std::string part(text.substr(start, comma - start));
    if (part.empty()) {
      throw Error(ErrorCode::kUsage, where, fmt::format("\"{}\" has an empty entry", text),
                  "separate values by one comma, without spaces");
    }
    if (std::ranges::find(out, part) != out.end()) fail_usage(where, "{} is there twice", part);
    out.push_back(std::move(part));
    start = comma + 1;
  }
  return out;
}

std::string help_of_thousand(Thousand thousand) {
  return thousand == Thousand::kBinary ? " (4k is 4096)" : "";
}

const Option* OptionSet::find(std::string_view flag) const {
  const auto found = std::ranges::find(options_, flag, &Option::flag);
  return found == options_.end() ? nullptr : &*found;
}

std::string OptionSet::flag_of(std::string_view field) const {
  if (const auto known = fields_.find(field); known != fields_.end()) return known->second.flag;
  const Option* option = find("--" + with_dashes(field));
  return option == nullptr ? std::string() : option->flag;
}

std::string OptionSet::in_flags(std::string_view text) const {
  return with_options(text, [&](std::string_view name) {
    const std::string flag = flag_of(name);
    return flag.empty() ? fmt::format("option {}", name) : flag;
  });
}

Error OptionSet::in_flags(const Error& error) const {
  About about = error.about();
  if (about.kind == About::Kind::kField) {
    const auto known = fields_.find(about.text);
    const bool is_typed =
        known != fields_.end() && known->second.typed != nullptr && !known->second.typed->empty();
    const std::string flag = is_typed ? *known->second.typed : flag_of(about.text);
    if (!flag.empty()) about = flag;
  }
  return {error.code(), std::move(about), in_flags(error.message()), in_flags(error.hint())};
}

void OptionSet::show_flags() {
  for (Option& option : options_) option.doc = in_flags(option.doc);
}

void say_if_scaled(const std::string& flag, const std::string& given, const std::string& read) {
  if (given != read) log_info("{} {} is {}", flag, given, read);
}

std::int64_t OptionSet::read_count(const std::string& where, const std::string& text,
                                   IntRange range) {
  const std::int64_t out = parse_count(where, text, range.min, range.max, range.thousand);
  if (range.thousand == Thousand::kBinary) say_if_scaled(where, text, std::to_string(out));
  return out;
}

std::string OptionSet::default_text(std::int64_t value, IntRange range) {
  return value < range.min || value > range.max ? std::string() : std::to_string(value);
}

std::string OptionSet::joined(std::span<const std::string> names, std::string_view separator) {
  return fmt::format("{}", fmt::join(names, separator));
}

void OptionSet::values(std::string flag, std::string value_name, int min, int max, std::string doc,
                       Option::Read read) {
  options_.push_back(
      {group_, std::move(flag), std::move(value_name), std::move(doc), std::move(read), min, max});
}

void OptionSet::value(std::string flag, std::string value_name, std::string doc, Option::Read read,
                      std::string default_text) {
  values(std::move(flag), std::move(value_name), 1, 1, std::move(doc), std::move(read));
  options_.back().default_text = std::move(default_text);
}

void OptionSet::toggle(std::string flag, bool& out, std::string doc) {
  values(std::move(flag), "", 0, 0, std::move(doc),
         [&out](const std::string&, const std::string&) { out = true; });
}

void OptionSet::record(GivenOptions& out) {
  for (Option& option : options_) {
    option.read = [&out, read = std::move(option.read)](const std::string& flag,
                                                        const std::string& text) {
      read(flag, text);
      out[flag].push_back(text);
    };
  }
}

void OptionSet::text(std::string flag, std::string value_name, std::string& out, std::string doc) {
  value(
      std::move(flag), std::move(value_name), std::move(doc),
      [&out](const std::string& where, const std::string& text) { out = not_empty(where, text); },
      out);
}

void OptionSet::path(std::string flag, std::string value_name, std::filesystem::path& out,
                     std::string doc) {
  value(
      std::move(flag), std::move(value_name), std::move(doc),
      [&out](const std::string& where, const std::string& text) { out = not_empty(where, text); },
      out.string());
}

void OptionSet::real(std::string flag, double& out, RealRange range, std::string doc) {
  const bool is_default = out >= range.min && out <= range.max;
  value(
      std::move(flag), "X", std::move(doc),
      [&out, range](const std::string& where, const std::string& text) {
        out = parse_real(where, text, range.min, range.max);
      },
      is_default ? fmt::format("{:g}", out) : std::string());
}

void OptionSet::integers(std::string flag, std::vector<std::int64_t>& out, IntRange range,
                         std::string doc) {
  value(
      std::move(flag), "N[,N]", doc + help_of_thousand(range.thousand),
      [&out, range](const std::string& where, const std::string& text) {
        out.clear();
        for (const std::string& part : split_list(where, text)) {
          out.push_back(read_count(where, part, range));
        }
      },
      fmt::format("{}", fmt::join(out, ",")));
}

void OptionSet::choice(std::string flag, std::string& out, std::vector<std::string> names,
                       std::string doc) {
  value(
      std::move(flag), joined(names, "|"), std::move(doc),
      [&out, names](const std::string& where, const std::string& text) {
        check_choice(where, text, names);
        out = text;
      },
      out);
  offer(std::move(names));
}

void OptionSet::choices(std::string flag, std::vector<std::string>& out,
                        std::vector<std::string> names, std::string doc) {
  value(
      std::move(flag), "NAME[,NAME]", fmt::format("{}: {}", doc, joined(names, ", ")),
      [&out, names](const std::string& where, const std::string& text) {
        out = split_list(where, text);
        for (const std::string& part : out) check_choice(where, part, names);
      },
      joined(out, ","));
  offer(std::move(names));
}

void OptionSet::positional(std::string name, std::string& out, std::string doc, bool is_required) {
  positionals_.push_back(
      {std::move(name), std::move(doc),
       [&out](const std::string& where, const std::string& text) { out = not_empty(where, text); },
       is_required});
}

}  // namespace tracestep::cli
