// A verb of the command line. One file each; verbs.cc is their table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "cli/command_line.h"

namespace sumonce {

struct Context {
  std::string program;  // as the user called it
  Io& io;
  const Engine& engine;
};

// What a verb does once its flags are read; returns the exit status.
using VerbAction = std::function<int(Context&)>;

struct Verb {
  std::string name;
  std::string summary;
  std::vector<std::string> examples;  // of its --help, without the program's name
  // Declares arguments and flags. A flag's value that makes no sense throws CLI::ValidationError
  // while parsing.
  VerbAction (*declare)(CLI::App& app);
};

const std::vector<Verb>& Verbs();

VerbAction DeclareRun(CLI::App& app);
VerbAction DeclareProve(CLI::App& app);
VerbAction DeclareAudit(CLI::App& app);
VerbAction DeclareList(CLI::App& app);
VerbAction DeclareValidate(CLI::App& app);
VerbAction DeclareBench(CLI::App& app);
VerbAction DeclareDiff(CLI::App& app);
VerbAction DeclareLint(CLI::App& app);
VerbAction DeclareInspect(CLI::App& app);
VerbAction DeclareExplain(CLI::App& app);
VerbAction DeclareDoctor(CLI::App& app);

}  // namespace sumonce
