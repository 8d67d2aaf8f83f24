#include "cli/flags.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/text.h"

namespace sumonce {
namespace {

constexpr int kMaxAxisSize =
    1 << 20;                      // the reader knows the real limits; this keeps products in range
constexpr size_t kMaxSizes = 64;  // of one axis
constexpr Axis kOverridable[] = {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp};

// "'fibre' is none of fibers, threads; did you mean 'fibers'?"
std::string NotAmong(const std::string& word, const std::vector<std::string>& choices) {
  const std::string closest = Closest(word, choices);
  return absl::StrCat("'", word, "' is none of ", absl::StrJoin(choices, ", "),
                      closest.empty() ? "" : absl::StrCat("; did you mean '", closest, "'?"));
}

std::vector<int> ParseSizes(const std::string& flag, const std::string& text) {
  std::vector<int> sizes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1 || size > kMaxAxisSize)
      throw CLI::ValidationError(
          flag, absl::StrCat("'", text, "': expected sizes from 1, like 4 or 2,4,8"));
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  }
  if (sizes.size() > kMaxSizes)
    throw CLI::ValidationError(flag, absl::StrCat("at most ", kMaxSizes, " sizes"));
  return sizes;
}

int64_t ParseBytes(const std::string& flag, const std::string& text, int64_t most) {
  static constexpr absl::string_view kUnits = "KMG";
  const size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  const absl::string_view digits =
      absl::string_view(text).substr(0, text.size() - (unit != kUnits.npos));
  int64_t number = 0;
  if (!absl::SimpleAtoi(digits, &number) || number < 1 ||
      number > most >> (unit == kUnits.npos ? 0 : 10 * (unit + 1)))
    throw CLI::ValidationError(
        flag, absl::StrCat("'", text, "': expected 1 byte to ", most >> 30, "G, like 4, 64K, 16M"));
  return unit == kUnits.npos ? number : number << 10 * (unit + 1);
}

// "json:report.json" -> (json, report.json).
FormatSpec ParseFormat(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  std::vector<std::string> names;
  for (const ReportFormat& format : ReportFormats()) names.push_back(format.name);
  FormatSpec spec{.format = FindReportFormat(name), .path = ""};
  if (spec.format == nullptr) throw CLI::ValidationError("--format", NotAmong(name, names));
  if (colon == std::string::npos) return spec;
  spec.path = text.substr(colon + 1);
  if (spec.path.empty())
    throw CLI::ValidationError("--format", absl::StrCat("'", text, "': a path after ':'"));
  return spec;
}

// One axis has sizes from one flag.
void SetSizes(const std::string& flag, Axis axis, const std::string& sizes, SelectionFlags& flags) {
  if (flags.axes.contains(axis))
    throw CLI::ValidationError(flag, absl::StrCat("'", sizes, "': ", ToAbsl(Name(axis)),
                                                  " has a size already; give it once, by --",
                                                  ToAbsl(Name(axis)), " or by --at"));
  flags.axes[axis] = ParseSizes(flag, sizes);
}

std::string FormatDescription() {
  std::string text = "Where and how to report; repeatable.";
  for (const ReportFormat& format : ReportFormats())
    absl::StrAppend(&text, " ", format.name, ": ", format.summary, ".");
  return text;
}

}  // namespace

void AddPaths(CLI::App& app, SelectionFlags& flags) {
  app.add_option(
         "scenarios", flags.paths,
         "Scenario files, directories of them, or names as `list` prints them; without any, "
         "./scenarios or those that came with the program")
      ->type_name("SCENARIO|DIR");
}

void AddFilter(CLI::App& app, SelectionFlags& flags) {
  app.add_option("--filter", flags.filter, "Only scenarios whose name matches, e.g. 'lora/*'")
      ->type_name("GLOB");
}

void AddAxes(CLI::App& app, SelectionFlags& flags) {
  for (const Axis axis : kOverridable) {
    const std::string flag = absl::StrCat("--", ToAbsl(Name(axis)));
    app.add_option_function<std::string>(
           flag,
           [&flags, axis, flag](const std::string& text) { SetSizes(flag, axis, text, flags); },
           absl::StrCat("Instead of the file's ", ToAbsl(Name(axis)), "; 2,4,8 runs each"))
        ->type_name("SIZES");
  }
}

void AddAt(CLI::App& app, SelectionFlags& flags) {
  app.add_option_function<std::string>(
         "--at",
         [&flags](const std::string& text) {
           for (const absl::string_view part : absl::StrSplit(text, ',')) {
             const std::vector<std::string> sides = absl::StrSplit(part, '=');
             const auto axis = std::find_if(std::begin(kOverridable), std::end(kOverridable),
                                            [&](Axis known) { return Name(known) == sides[0]; });
             if (sides.size() != 2 || axis == std::end(kOverridable))
               throw CLI::ValidationError(
                   "--at", absl::StrCat("'", text, "': expected axes and sizes, like tp=4,dp=2"));
             SetSizes("--at", *axis, sides[1], flags);
           }
         },
         "On this mesh: factors as numbers, sizes checked; the proof itself holds for every size")
      ->type_name("AXIS=SIZE,...");
}

void AddSeed(CLI::App& app, SelectionFlags& flags) {
  AddNumber(app, "--seed", "Instead of the file's seed",
            [&flags](uint64_t seed) { flags.seed = seed; });
}

void AddOutput(CLI::App& app, OutputFlags& flags) {
  app.add_option_function<std::vector<std::string>>(
         "--format",
         [&flags](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) flags.formats.push_back(ParseFormat(text));
           if (std::count_if(flags.formats.begin(), flags.formats.end(),
                             [](const FormatSpec& spec) { return spec.path.empty(); }) > 1)
             throw CLI::ValidationError(
                 "--format", "only one report fits on stdout; give the others a path, json:PATH");
         },
         FormatDescription())
      ->type_name("FORMAT[:PATH]")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  AddChoice(app, "--color", "Colours of the console: auto, always, never",
            {"auto", "always", "never"}, [&flags](const std::string& choice) {
              flags.color = choice == "always"  ? ColorChoice::kAlways
                            : choice == "never" ? ColorChoice::kNever
                                                : ColorChoice::kAuto;
            });
  app.add_flag("--force", flags.force, "Overwrite files that are there");
}

void AddNumber(CLI::App& app, const std::string& flag, const std::string& description,
               const std::function<void(uint64_t)>& take) {
  app.add_option_function<std::string>(
         flag,
         [flag, take](const std::string& text) {
           uint64_t number = 0;
           if (!absl::SimpleAtoi(text, &number))
             throw CLI::ValidationError(
                 flag, absl::StrCat("'", text, "': expected a number from 0 to 2^64-1"));
           take(number);
         },
         description)
      ->type_name("N");
}

void AddSizes(CLI::App& app, const std::string& flag, const std::string& description,
              std::vector<int>& sizes) {
  app.add_option_function<std::string>(
         flag, [&sizes, flag](const std::string& text) { sizes = ParseSizes(flag, text); },
         description)
      ->type_name("SIZES");
}

void AddBytes(CLI::App& app, const std::string& flag, const std::string& description, int64_t most,
              int64_t& bytes) {
  app.add_option_function<std::string>(
         flag,
         [&bytes, flag, most](const std::string& text) { bytes = ParseBytes(flag, text, most); },
         description)
      ->type_name("BYTES");
}

void AddChoice(CLI::App& app, const std::string& flag, const std::string& description,
               const std::vector<std::string>& choices,
               const std::function<void(const std::string&)>& take) {
  app.add_option_function<std::string>(
         flag,
         [flag, choices, take](const std::string& word) {
           if (std::find(choices.begin(), choices.end(), word) == choices.end())
             throw CLI::ValidationError(flag, NotAmong(word, choices));
           take(word);
         },
         description)
      ->type_name("WORD");
}

}  // namespace sumonce
