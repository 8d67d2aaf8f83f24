#include "capture/manifest.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "capture/json_fields.h"

namespace sumonce::capture {
namespace {

constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxDims = 16;
constexpr std::string_view kFormat = "sumonce-capture";
constexpr int64_t kVersion = 1;

Scalar ScalarOf(const nlohmann::json& json) {
  if (json.is_null()) return std::monostate{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(kMaxInteger))
    return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Attributes AttributesOf(const JsonField& field) {
  Attributes attributes;
  for (const auto& [name, value] : field.Members()) attributes[name] = ScalarOf(value.json());
  return attributes;
}

// "(Shard(dim=0), Replicate())": one per mesh dimension.
std::vector<Placement> PlacementsOf(const JsonField& field) {
  std::vector<Placement> placements;
  const std::optional<std::string> text = field.Text();
  if (!text) return placements;
  using Kind = Placement::Kind;
  for (size_t at = 0; (at = text->find_first_of("RSP_", at)) != text->npos;) {
    const size_t open = text->find('(', at);
    const size_t close = open == text->npos ? open : text->find(')', open);
    if (close == text->npos) break;
    const std::string_view name = std::string_view(*text).substr(at, open - at);
    const std::string_view inside = std::string_view(*text).substr(open + 1, close - open - 1);
    Placement placement;
    if (name == "Replicate") placement.kind = Kind::kReplicate;
    if (name == "Partial" || name == "_Partial") placement.kind = Kind::kPartial;
    if (name == "Shard" &&
        absl::SimpleAtoi(ToAbsl(inside.substr(inside.find('=') + 1)), &placement.dim))
      placement.kind = Kind::kShard;
    placements.push_back(placement);
    at = close;
  }
  if (placements.empty()) field.Expected("placements such as \"(Shard(dim=0),)\"");
  return placements;
}

// Reads one manifest's members.
class ManifestBuilder {
 public:
  ManifestBuilder(const JsonField& root, Problems& problems) : root_(root), problems_(problems) {}

  Manifest Build() {
    Identity();
    Mesh();
    Groups();
    Params();
    Modules();
    Job();
    Layout();
    Placements();
    Owned();
    return std::move(manifest_);
  }

 private:
  void Identity() {
    if (const auto field = root_.Require("format")) {
      manifest_.format = field->Text().value_or("");
      if (manifest_.format != kFormat && field->json().is_string())
        field->Expected(absl::StrCat("\"", ToAbsl(kFormat), "\""));
    }
    if (const auto field = root_.Require("version")) {
      const std::optional<int64_t> version = field->Integer(1, kMaxInteger);
      if (version && *version != kVersion) {
        field->Problem(absl::StrCat("is ", *version, ", but this program reads version ", kVersion,
                                    "; take the hook and the program of one release"));
      }
    }
    if (const auto field = root_.Find("case")) manifest_.case_name = field->Text().value_or("");
    if (const auto field = root_.Find("run")) manifest_.run = field->Text().value_or("");
    if (const auto field = root_.Require("step"))
      manifest_.step = field->Integer(0, kMaxInteger).value_or(0);
    if (const auto field = root_.Require("world_size"))
      manifest_.world_size = static_cast<int>(field->Integer(1, kMaxRanks).value_or(1));
    if (const auto field = root_.Require("rank"))
      manifest_.rank = static_cast<int>(field->Integer(0, manifest_.world_size - 1).value_or(0));
  }

  void Mesh() {
    const auto mesh = root_.Require("mesh");
    if (!mesh) return;
    for (const auto& [name, axis] : mesh->Members()) {
      MeshAxis& entry = manifest_.mesh[name];
      if (const auto size = axis.Require("size"))
        entry.size = static_cast<int>(size->Integer(1, manifest_.world_size).value_or(1));
      if (const auto coordinate = axis.Require("coordinate"))
        entry.coordinate = static_cast<int>(coordinate->Integer(0, entry.size - 1).value_or(0));
    }
    CheckPlaces(*mesh, {"ep", "etp", "edp"});  // the dense factorisation of the world
    CheckPlaces(*mesh, {"tp", "cp", "dp"});    // that of the experts
  }

  // One factorisation of the world must not have more places than there are ranks.
  void CheckPlaces(const JsonField& mesh, const std::set<std::string>& other_axes) {
    int64_t places = 1;
    for (const auto& [name, axis] : manifest_.mesh) {
      if (!other_axes.contains(name))
        places = std::min(places * axis.size, kMaxInteger / kMaxRanks);
    }
    if (places <= manifest_.world_size) return;
    mesh.Problem(absl::StrCat("has ", places, " places, but world_size is ", manifest_.world_size,
                              "; the sizes multiply to it"));
  }

  void Groups() {
    const auto groups = root_.Find("groups");
    if (!groups) return;
    for (const auto& [name, lists] : groups->Members()) {
      std::set<int64_t> seen;
      for (const JsonField& list : lists.Elements()) {
        std::vector<int> ranks;
        for (const int64_t rank : list.Integers(0, manifest_.world_size - 1)) {
          if (!seen.insert(rank).second)
            list.Problem(absl::StrCat("names rank ", rank, " a second time"));
          ranks.push_back(static_cast<int>(rank));
        }
        manifest_.groups[name].push_back(std::move(ranks));
      }
    }
  }

  void Params() {
    const auto params = root_.Require("params");
    if (!params) return;
    for (const auto& [name, json] : params->Members()) {
      ManifestParam& param = manifest_.params[name];
      if (const auto shape = json.Require("shape")) {
        param.shape = shape->Integers(0, kMaxInteger);
        if (static_cast<int64_t>(param.shape.size()) > kMaxDims)
          shape->Problem(
              absl::StrCat("has ", param.shape.size(), " dimensions; expected at most ", kMaxDims));
      }
      if (const auto dtype = json.Find("dtype")) param.dtype = dtype->Text().value_or("");
      if (param.dtype.starts_with("torch.")) param.dtype = param.dtype.substr(6);
      if (const auto grad = json.Find("requires_grad"))
        param.requires_grad = grad->Bool().value_or(true);
      if (const auto marks = json.Find("marks")) param.marks = AttributesOf(*marks);
    }
  }

  void Modules() {
    const auto modules = root_.Find("modules");
    if (!modules) return;
    for (const auto& [name, json] : modules->Members()) {
      ManifestModule& module = manifest_.modules[name];
      module.attributes = AttributesOf(json);
      if (const auto class_name = json.Require("class"))
        module.class_name = class_name->Text().value_or("");
      module.attributes.erase("class");
    }
  }

  void Job() {
    if (const auto field = root_.Find("framework")) {
      for (const auto& [package, version] : field->Members())
        manifest_.framework[package] = version.Text().value_or("");
    }
    for (const auto& [key, attributes] :
         {std::pair("config", &manifest_.config), std::pair("ddp", &manifest_.ddp),
          std::pair("optimizer", &manifest_.optimizer),
          std::pair("loss_weights", &manifest_.loss_weights)}) {
      if (const auto field = root_.Find(key)) *attributes = AttributesOf(*field);
    }
    if (const auto tokens = root_.Find("tokens")) {
      if (const auto local = tokens->Find("local")) manifest_.tokens.local = local->Number();
      if (const auto global = tokens->Find("global")) manifest_.tokens.global = global->Number();
      if (const auto each = tokens->Find("per_microbatch")) {
        for (const JsonField& element : each->Elements())
          manifest_.tokens.per_microbatch.push_back(element.Number().value_or(0));
      }
    }
    if (const auto field = root_.Find("clip_grad")) manifest_.clip_grad = field->Number();
    // A norm that is not finite is a finding of the audit, not a mistake of the file.
    if (const auto field = root_.Find("grad_norm")) manifest_.grad_norm = AnyNumber(*field);
    if (const auto field = root_.Find("tied")) {
      for (const auto& [name, other] : field->Members())
        manifest_.tied[name] = other.Text().value_or("");
    }
  }

  // Also what Python's json writes of a number that is not finite, as text.
  static std::optional<double> AnyNumber(const JsonField& field) {
    const auto& json = field.json();
    double value = 0;
    if (json.is_string() && absl::SimpleAtod(json.get_ref<const std::string&>(), &value))
      return value;
    return field.Number();
  }

  void Layout() {
    const auto layout = root_.Find("layout");
    if (!layout) return;
    manifest_.layout.emplace();
    if (!layout->json().is_object()) return layout->Expected("an object");
    for (auto member = layout->json().begin(); member != layout->json().end(); ++member) {
      ParamLayout& entry = (*manifest_.layout)[member.key()];
      entry.known = !member->is_null();
      if (!entry.known) continue;
      const JsonField json(*member, "layout." + member.key(), problems_);
      if (const auto dim = json.Require("dim"))
        entry.dim = static_cast<int>(dim->Integer(0, kMaxDims - 1).value_or(0));
      if (const auto sections = json.Find("sections"))
        entry.sections = sections->Integers(1, kMaxInteger);
      CheckLayout(member.key(), entry, json);
    }
  }

  // The sections, and the dimension, must be those of the rank's own tensor.
  void CheckLayout(const std::string& name, const ParamLayout& entry, const JsonField& json) {
    const auto param = manifest_.params.find(name);
    if (param == manifest_.params.end()) return;
    if (entry.dim >= static_cast<int>(param->second.shape.size())) {
      json.Problem(absl::StrCat("cuts dimension ", entry.dim, " of a parameter with ",
                                param->second.shape.size()));
    }
  }

  void Placements() {
    const auto placements = root_.Find("placements");
    if (!placements) return;
    manifest_.placements.emplace();
    for (const auto& [name, json] : placements->Members()) {
      if (json.is_null()) continue;
      ParamPlacements& entry = (*manifest_.placements)[name];
      if (const auto param = json.Require("param")) entry.param = PlacementsOf(*param);
      if (const auto grad = json.Find("grad")) entry.grad = PlacementsOf(*grad);
    }
  }

  void Owned() {
    const auto owned = root_.Find("owned");
    if (!owned) return;
    manifest_.owned.emplace();
    for (const auto& [name, json] : owned->Members()) {
      if (json.is_null()) continue;
      const std::vector<int64_t> range = json.Integers(0, kMaxInteger);
      if (range.size() != 2 || range[0] > range[1]) {
        json.Expected("[begin, end]: the flat range of elements that this rank reduces");
        continue;
      }
      (*manifest_.owned)[name] = {.begin = range[0], .end = range[1]};
    }
  }

  const JsonField& root_;
  Problems& problems_;
  Manifest manifest_;
};

// The object with every string that should be structured parsed, as __metadata__ has them.
nlohmann::json Structured(const nlohmann::json& object, Problems& problems) {
  static const auto& structured = *new std::set<std::string>{
      "mesh", "groups",    "framework",    "params", "modules", "config", "tokens",
      "ddp",  "optimizer", "loss_weights", "layout", "tied",    "owned",  "placements"};
  nlohmann::json result = nlohmann::json::object();
  for (auto member = object.begin(); member != object.end(); ++member) {
    if (!member->is_string() || !structured.contains(member.key())) {
      result[member.key()] = *member;
      continue;
    }
    std::optional<nlohmann::json> json =
        ParseJson(member->get_ref<const std::string&>(), member.key(), problems);
    if (json) result[member.key()] = *std::move(json);
  }
  return result;
}

}  // namespace

bool IsSet(const Attributes& attributes, const std::string& name) {
  const auto entry = attributes.find(name);
  if (entry == attributes.end()) return false;
  if (const auto* flag = std::get_if<bool>(&entry->second)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&entry->second)) return *integer != 0;
  if (const auto* number = std::get_if<double>(&entry->second)) return *number != 0;
  if (const auto* text = std::get_if<std::string>(&entry->second)) return !text->empty();
  return false;
}

std::optional<bool> FlagOf(const Attributes& attributes, const std::string& name) {
  const auto entry = attributes.find(name);
  if (entry == attributes.end()) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(&entry->second)) return *flag;
  return std::nullopt;
}

std::optional<int64_t> IntegerOf(const Attributes& attributes, const std::string& name) {
  const auto entry = attributes.find(name);
  if (entry == attributes.end()) return std::nullopt;
  if (const auto* integer = std::get_if<int64_t>(&entry->second)) return *integer;
  return std::nullopt;
}

std::optional<double> NumberOf(const Attributes& attributes, const std::string& name) {
  const auto entry = attributes.find(name);
  if (entry == attributes.end()) return std::nullopt;
  if (const auto* integer = std::get_if<int64_t>(&entry->second))
    return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&entry->second)) return *number;
  return std::nullopt;
}

std::optional<std::string> TextOf(const Attributes& attributes, const std::string& name) {
  const auto entry = attributes.find(name);
  if (entry == attributes.end()) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(&entry->second)) return *text;
  return std::nullopt;
}

std::string ToText(const Scalar& scalar) {
  if (const auto* flag = std::get_if<bool>(&scalar)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&scalar)) return absl::StrCat(*integer);
  if (const auto* number = std::get_if<double>(&scalar)) return absl::StrCat(*number);
  if (const auto* text = std::get_if<std::string>(&scalar)) return absl::StrCat("\"", *text, "\"");
  return "null";
}

int Manifest::AxisSize(const std::string& axis) const {
  const auto entry = mesh.find(axis);
  return entry == mesh.end() ? 1 : entry->second.size;
}

int Manifest::Coordinate(const std::string& axis) const {
  const auto entry = mesh.find(axis);
  return entry == mesh.end() ? 0 : entry->second.coordinate;
}

std::vector<int> Manifest::GroupOfRank(const std::string& group) const {
  const auto entry = groups.find(group);
  if (entry == groups.end()) return {};
  for (const std::vector<int>& ranks : entry->second) {
    for (const int member : ranks) {
      if (member == rank) return ranks;
    }
  }
  return {};
}

absl::StatusOr<Manifest> ParseManifest(const std::map<std::string, std::string>& metadata,
                                       const std::string& path) {
  Problems problems(path);
  const nlohmann::json json = Structured(nlohmann::json(metadata), problems);
  const JsonField root(json, "", problems);
  Manifest manifest = ManifestBuilder(root, problems).Build();
  SUMONCE_RETURN_IF_ERROR(problems.ToStatus());
  manifest.path = path;
  return manifest;
}

absl::StatusOr<Manifest> ParseManifestJson(std::string_view text, const std::string& path) {
  Problems problems(path);
  std::optional<nlohmann::json> parsed = ParseJson(text, "", problems);
  if (parsed && !parsed->is_object())
    problems.Add("", "is no JSON object; expected the keys of docs/capture-format.md");
  SUMONCE_RETURN_IF_ERROR(problems.ToStatus());
  const nlohmann::json json = Structured(*parsed, problems);
  const JsonField root(json, "", problems);
  Manifest manifest = ManifestBuilder(root, problems).Build();
  SUMONCE_RETURN_IF_ERROR(problems.ToStatus());
  manifest.path = path;
  return manifest;
}

}  // namespace sumonce::capture
