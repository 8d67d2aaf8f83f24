#include "cli/command_line.h"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>

#include "CLI/CLI.hpp"
#include "base/text.h"
#include "cli/build_info.h"
#include "cli/exit_code.h"
#include "cli/verb.h"

namespace sumonce {
namespace {

constexpr char kProgram[] = "sumonce";

// --help starts with two examples.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::vector<std::string> examples) : examples_(std::move(examples)) {
    column_width(26);
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = "Examples:\n";
    for (const std::string& example : examples_) text += "  sumonce " + example + "\n";
    return text + "\n" + CLI::Formatter::make_help(app, std::move(name), mode);
  }

 private:
  std::vector<std::string> examples_;
};

struct Parser {
  CLI::App app{
      "Is every gradient contribution summed exactly once, over the right ranks, with the right "
      "scale?",
      kProgram};
  std::map<const CLI::App*, VerbAction> actions;
};

void Declare(Parser& parser) {
  CLI::App& app = parser.app;
  app.formatter(std::make_shared<HelpFormatter>(Verbs().front().examples));
  app.set_version_flag("--version", VersionText, "Versions of this build and of what it runs with");
  app.allow_extras();  // an unknown word is answered below, with a suggestion
  app.require_subcommand(0, 1);
  for (const Verb& verb : Verbs()) {
    CLI::App& sub = *app.add_subcommand(verb.name, verb.summary);
    sub.formatter(std::make_shared<HelpFormatter>(verb.examples));
    sub.allow_extras();
    parser.actions[&sub] = verb.declare(sub);
  }
}

const CLI::App& ChosenApp(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// What stands first among the arguments that nothing takes: a flag, or a verb.
std::string UnknownWord(const Parser& parser) {
  const CLI::App& app = ChosenApp(parser.app);
  const std::vector<std::string> rest = app.remaining();
  if (rest.empty()) return "";
  const std::string word = rest.front().substr(0, rest.front().find('='));
  const bool is_verb = &app == &parser.app && word.rfind('-', 0) != 0;
  std::vector<std::string> choices;
  if (is_verb) {
    for (const Verb& verb : Verbs()) choices.push_back(verb.name);
  } else {
    choices = FlagNames(app);
  }
  const std::string closest = Closest(word, choices);
  return std::string("unknown ") + (is_verb ? "verb" : "flag") + " '" + word + "'" +
         (closest.empty() ? "" : "; did you mean '" + closest + "'?");
}

int UsageError(const Parser& parser, const std::string& message, Io& io) {
  const CLI::App& app = ChosenApp(parser.app);
  io.err << "sumonce: error: " << Printable(message) << "\n"
         << "See '" << kProgram << (&app == &parser.app ? "" : " " + app.get_name())
         << " --help'.\n";
  return kUsage;
}

// kAsExpected when the flags make sense. `done`: help or version was printed.
int Parse(Parser& parser, const std::vector<std::string>& arguments, Io& io, bool& done) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend() - 1);
  std::string message;
  try {
    parser.app.parse(reversed);
  } catch (const CLI::Success& success) {  // --help, --version
    done = true;
    parser.app.exit(success, io.out, io.err);
    return kAsExpected;
  } catch (const CLI::ParseError& error) {
    message = error.what();
  }
  const std::string unknown = UnknownWord(parser);
  if (!unknown.empty()) message = unknown;
  return message.empty() ? kAsExpected : UsageError(parser, message, io);
}

int RunVerb(const std::vector<std::string>& arguments, Io& io, const Engine& engine) {
  Parser parser;
  Declare(parser);
  bool done = false;
  if (const int status = Parse(parser, arguments, io, done); status != kAsExpected || done)
    return status;
  const auto action = parser.actions.find(&ChosenApp(parser.app));
  if (action == parser.actions.end()) {
    io.err << parser.app.help();
    return UsageError(parser, "a verb is missing", io);
  }
  Context context{arguments.front(), io, engine};
  return action->second(context);
}

}  // namespace

int RunCommandLine(const std::vector<std::string>& arguments, Io& io, const Engine& engine) {
  int status = kInternalError;
  try {
    status = RunVerb(arguments, io, engine);
  } catch (const std::exception& error) {
    io.err << "sumonce: internal error: " << error.what() << "\n";
  }
  io.out.flush();
  if (!io.out) {
    io.err << "sumonce: error: cannot write to standard output\n";
    return status == kAsExpected ? kUsage : status;
  }
  return status;
}

}  // namespace sumonce
