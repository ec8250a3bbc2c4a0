#include "cli/printed_pages.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"

namespace tracestep::cli {
namespace {

std::string names_of(std::span<const Command> commands) {
  std::string out;
  for (const Command& command : commands) out += (out.empty() ? "" : " ") + command.name;
  return out;
}

bool is_path(const Option& option) {
  const std::string& name = option.value_name;
  return name == "FILE" || name == "DIR" || name == "PATH" || name == "PATH...";
}

// Puts a text between single quotes; a quote in it ends them, stands for itself, begins them again.
std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// --- bash ---------------------------------------------------------------------------------------
// Writes the case of a command: its flags, and the values that may follow each flag.
std::string bash_command(const Command& command) {
  std::string flags = "--help", values;
  for (const Option& option : command.options.options()) {
    flags += " " + option.flag;
    if (option.max_values == 0) continue;
    if (is_path(option)) {
      values += fmt::format("        {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n",
                            option.flag);
    } else {
      values +=
          fmt::format("        {}) words='{}' ;;\n", option.flag, fmt::join(option.offered, " "));
    }
  }
  return fmt::format("    {})\n      words='{}'\n      case $before in\n{}      esac ;;\n",
                     command.name, flags, values);
}

// The end of the script for bash, which completes the part of a list after its last comma.
constexpr const char* kBashEnd =
    "  esac\n"
    "  local list=\n"
    "  [[ $word == *,* ]] && list=${word%,*},\n"
    "  COMPREPLY=($(compgen -P \"$list\" -W \"$words\" -- \"${word##*,}\"))\n"
    "  [[ ${#COMPREPLY[@]} -eq 0 && -z $words ]] && COMPREPLY=($(compgen -f -- \"$word\"))\n"
    "  return 0\n"
    "}\n"
    "complete -F _tracestep tracestep\n";

std::string bash_script(std::span<const Command> commands) {
  std::string out = fmt::format(
      "# Completions of tracestep for bash, written by `tracestep completions bash`.\n"
      "_tracestep() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=\n"
      "  case $COMP_CWORD:${{COMP_WORDS[1]}} in\n"
      "    1:*) words='{0} help' ;;\n"
      "    2:help) words='{0} {1}' ;;\n"
      "    *) words= ;;\n"
      "  esac\n"
      "  [[ $COMP_CWORD -gt 1 ]] && case ${{COMP_WORDS[1]}} in\n",
      names_of(commands), kArchitectureTopic);
  for (const Command& command : commands) out += bash_command(command);
  return out + kBashEnd;
}

// --- zsh ----------------------------------------------------------------------------------------

// Escapes brackets and colons, which have a meaning of their own within '--flag[…]'.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_option(const Option& option) {
  std::string out = fmt::format("{}[{}]", option.flag, zsh_text(option.doc));
  if (option.max_values == 0) return shell_word(out);
  const std::string name = zsh_text(option.value_name);
  constexpr int kMostNamed = 2;
  const bool is_open_ended = option.max_values > kMostNamed;  // all words that follow
  for (int i = 0; i < (is_open_ended ? 1 : std::max(1, option.max_values)); ++i) {
    if (is_open_ended) out += ":*";
    if (is_path(option)) {
      out += fmt::format(":{}:_files", name);
    } else if (option.offered.empty()) {
      out += fmt::format(":{}: ", name);
    } else {
      out += fmt::format(":{}:_values -s , {} {}", name, "value", fmt::join(option.offered, " "));
    }
  }
  return shell_word(out);
}

std::string zsh_script(std::span<const Command> commands) {
  std::string out =
      "#compdef tracestep\n"
      "# Completions of tracestep for zsh, written by `tracestep completions zsh`.\n"
      "_tracestep() {\n"
      "  local -a commands=(\n";
  for (const Command& command : commands) {
    out += fmt::format("    {}\n", shell_word(command.name + ":" + command.summary));
  }
  out +=
      "  )\n"
      "  if ((CURRENT == 2)); then _describe command commands; return; fi\n"
      "  case $words[2] in\n"
      "    help) _describe command commands ;;\n";
  for (const Command& command : commands) {
    out += fmt::format(
        "    {}) shift words; ((CURRENT--)); _arguments '*:file:_files' \\\n"
        "      '--help[explain the command]'",
        command.name);
    for (const Option& option : command.options.options()) {
      out += " \\\n      " + zsh_option(option);
    }
    out += " ;;\n";
  }
  return out + "  esac\n}\n_tracestep \"$@\"\n";
}

// --- fish ---------------------------------------------------------------------------------------

// Puts a text between single quotes, within which fish has a backslash and a quote escaped.
std::string fish_text(std::string_view text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_script(std::span<const Command> commands) {
  std::string out =
      "# Completions of tracestep for fish, written by `tracestep completions fish`.\n";
  for (const Command& command : commands) {
    out += fmt::format("complete -c tracestep -n __fish_use_subcommand -f -a {} -d {}\n",
                       command.name, fish_text(command.summary));
  }
  for (const Command& command : commands) {
    for (const Option& option : command.options.options()) {
      out += fmt::format("complete -c tracestep -n '__fish_seen_subcommand_from {}' -l {} -d {}",
                         command.name, option.flag.substr(2), fish_text(option.doc));
      if (option.max_values > 0) out += is_path(option) ? " -r -F" : " -x";
      if (!option.offered.empty()) {
        out += fmt::format(" -a '(__fish_append , {})'", fmt::join(option.offered, " "));
      }
      out += '\n';
    }
  }
  return out;
}

// --- the manual ---------------------------------------------------------------------------------

// Writes a line that roff prints as it is: a dot or a quote at its start would be a request.
std::string roff_line(std::string_view line) {
  std::string out = line.starts_with('.') || line.starts_with('\'') ? "\\&" : "";
  for (char c : line) out += c == '\\' ? std::string("\\e") : c == '-' ? "\\-" : std::string(1, c);
  return out + "\n";
}

std::string roff_lines(std::string_view text) {
  std::string out = ".nf\n";
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += roff_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + ".fi\n";
}

}  // namespace

std::string completion_script(std::string_view shell, std::span<const Command> commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  TRACESTEP_CHECK(shell == "fish", "no completions for {}", shell);
  return fish_script(commands);
}

std::string manual_page(std::span<const Command> commands) {
  std::string out =
      ".TH TRACESTEP 1\n.SH NAME\ntracestep \\- what a Transformer training step does, where its "
      "time and its bytes go\n.SH SYNOPSIS\n.B tracestep\nCOMMAND [OPTION]...\n.SH DESCRIPTION\n";
  out += roff_lines(help_text(commands)) + ".SH COMMANDS\n";
  for (const Command& command : commands) {
    out += fmt::format(".SS {}\n", command.name) + roff_lines(help_text(command));
  }
  out += ".SH ARCHITECTURE\n" + roff_lines(architecture_help(commands));
  return out;
}

}  // namespace tracestep::cli
