// What CI systems read: JUnit XML and GitHub's workflow commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "report/formats.h"
#include "report/testing/sample_results.h"

namespace sumonce {
namespace {

using ::sumonce::testing::LoraResult;
using ::sumonce::testing::LoraScenario;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Written(const std::string& format, const std::vector<ScenarioResult>& results) {
  std::ostringstream out;
  const auto reporter = FindReportFormat(format)->make(out, {});
  Summary summary;
  reporter->Begin(static_cast<int>(results.size()));
  for (const ScenarioResult& result : results) {
    summary.Count(result);
    reporter->OnResult(result);
  }
  reporter->End(summary);
  return out.str();
}

ScenarioResult Named(ScenarioResult result, const std::string& name, RunOutcome outcome) {
  result.name = name;
  result.outcome = outcome;
  return result;
}

std::vector<ScenarioResult> OneOfEach(const Scenario& scenario) {
  ScenarioResult failed = LoraResult(scenario, RunOutcome::kFail);
  failed.digest = "0123456789abcdef";
  failed.scenario = &scenario;
  failed.failures = {"2 < 3 & \"quoted\" \x01"};
  ScenarioResult skipped = Named({}, "gdn/upstream", RunOutcome::kSkip);
  skipped.file = "scenarios/gdn/upstream.textproto";
  skipped.skip_reason = "no GPU";
  ScenarioResult broken = LoraResult(scenario, RunOutcome::kFail);
  broken.internal_error = true;
  return {failed, Named(LoraResult(scenario, RunOutcome::kPass), "lora/other", RunOutcome::kPass),
          skipped, Named(broken, "lora/broken", RunOutcome::kFail)};
}

// The attributes and elements that the common schema asks for, read back by another parser.
TEST(Junit, HasASuiteAnAreaAndTheMechanismAsType) {
  const Scenario scenario = LoraScenario();
  pugi::xml_document document;
  const std::string text = Written("junit", OneOfEach(scenario));
  ASSERT_TRUE(document.load_string(text.c_str())) << text;
  const pugi::xml_node root = document.child("testsuites");
  EXPECT_EQ(root.attribute("tests").as_int(), 4);
  EXPECT_EQ(root.attribute("failures").as_int(), 1);
  EXPECT_EQ(root.attribute("errors").as_int(), 1);
  const pugi::xml_node lora = root.find_child_by_attribute("testsuite", "name", "lora");
  EXPECT_EQ(lora.attribute("tests").as_int(), 3);
  EXPECT_EQ(lora.attribute("failures").as_int(), 1);
  EXPECT_EQ(lora.attribute("errors").as_int(), 1);
  EXPECT_EQ(lora.attribute("skipped").as_int(), 0);
  EXPECT_GE(lora.attribute("time").as_double(-1), 0);
  const pugi::xml_node properties = lora.first_child();
  EXPECT_STREQ(properties.name(), "properties");  // first, as the schema has it
  const auto value_of = [&](const char* name) {
    return properties.find_child_by_attribute("property", "name", name).attribute("value").value();
  };
  EXPECT_STREQ(value_of("lora/row_flag_missing seed"), "7");
  EXPECT_STREQ(value_of("lora/row_flag_missing digest"), "0123456789abcdef");
  const pugi::xml_node failed =
      lora.find_child_by_attribute("testcase", "name", "lora/row_flag_missing");
  EXPECT_STREQ(failed.attribute("classname").value(), "lora");
  const pugi::xml_node failure = failed.child("failure");
  EXPECT_STREQ(failure.attribute("type").value(), "MISSING_SUM");
  EXPECT_STREQ(failure.attribute("message").value(), "2 < 3 & \"quoted\" ?");
  EXPECT_THAT(failure.text().get(), HasSubstr("cure: set sequence_parallel=true"));
  const pugi::xml_node passed = lora.find_child_by_attribute("testcase", "name", "lora/other");
  EXPECT_FALSE(passed.first_child());
  EXPECT_TRUE(lora.find_child_by_attribute("testcase", "name", "lora/broken").child("error"));
  const pugi::xml_node gdn = root.find_child_by_attribute("testsuite", "name", "gdn");
  EXPECT_STREQ(gdn.child("testcase").child("skipped").attribute("message").value(), "no GPU");
}

// The schema that CI systems share (Jenkins' junit-4 to junit-10.xsd): elements in their order, the
// attributes that each may have, and those that it must.
struct Rule {
  std::vector<std::string> children;  // in this order; the last one any number of times
  std::set<std::string> may, must;
};

const std::map<std::string, Rule>& CommonSchema() {
  static const auto& rules = *new std::map<std::string, Rule>{
      {"testsuites",
       {{"testsuite"}, {"name", "time", "disabled"}, {"tests", "failures", "errors"}}},
      {"testsuite",
       {{"properties", "testcase"},
        {"time", "skipped", "disabled", "timestamp", "hostname", "id", "package"},
        {"name", "tests", "failures", "errors"}}},
      {"properties", {{"property"}, {}, {}}},
      {"property", {{}, {}, {"name", "value"}}},
      {"testcase",
       {{"skipped", "error", "failure"}, {"time", "classname", "assertions", "status"}, {"name"}}},
      {"skipped", {{}, {"message"}, {}}},
      {"failure", {{}, {"type", "message"}, {}}},
      {"error", {{}, {"type", "message"}, {}}}};
  return rules;
}

void ExpectValid(const pugi::xml_node& node) {
  const std::string name = node.name();
  ASSERT_TRUE(CommonSchema().contains(name)) << name;
  const Rule& rule = CommonSchema().at(name);
  std::set<std::string> given;
  for (const pugi::xml_attribute& attribute : node.attributes()) {
    const std::string key = attribute.name();
    EXPECT_TRUE(rule.may.contains(key) || rule.must.contains(key)) << name << " " << key;
    EXPECT_TRUE(given.insert(key).second) << name << " " << key << " twice";
    const bool number = key == "tests" || key == "failures" || key == "errors" || key == "time" ||
                        (key == "skipped" && name == "testsuite");
    if (number) {
      EXPECT_THAT(attribute.value(), ::testing::MatchesRegex("[0-9]+(\\.[0-9]+)?"));
    }
  }
  for (const std::string& key : rule.must) EXPECT_TRUE(given.contains(key)) << name << " " << key;
  size_t at = 0;
  for (const pugi::xml_node& child : node.children()) {
    if (child.type() != pugi::node_element) continue;
    const auto found = std::find(rule.children.begin() + at, rule.children.end(), child.name());
    ASSERT_NE(found, rule.children.end()) << child.name() << " in " << name;
    const bool many = found + 1 == rule.children.end();
    at = found - rule.children.begin() + (many ? 0 : 1);
    ExpectValid(child);
  }
}

TEST(Junit, IsValidAgainstTheCommonSchema) {
  const Scenario scenario = LoraScenario();
  for (const auto& results :
       {OneOfEach(scenario), std::vector<ScenarioResult>(), {OneOfEach(scenario)[2]}}) {
    pugi::xml_document document;
    const std::string text = Written("junit", results);
    ASSERT_TRUE(document.load_string(text.c_str())) << text;
    ASSERT_STREQ(document.document_element().name(), "testsuites");
    ExpectValid(document.document_element());
  }
}

// SUMONCE_WRITE_REPORTS=<folder> writes the files anew.
std::string Recorded(const std::string& name, const std::string& text) {
  if (const char* folder = std::getenv("SUMONCE_WRITE_REPORTS"))
    std::ofstream(std::string(folder) + "/" + name) << text;
  std::ifstream in(SUMONCE_TEST_DATA "/reports/" + name);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Junit, EqualsTheRecordedText) {
  const Scenario scenario = LoraScenario();
  const std::string text = Written("junit", OneOfEach(scenario));
  EXPECT_EQ(text, Recorded("junit.xml", text));
}

TEST(Github, EqualsTheRecordedText) {
  const Scenario scenario = LoraScenario();
  const std::string text = Written("github", OneOfEach(scenario));
  EXPECT_EQ(text, Recorded("github.txt", text));
}

TEST(Github, AFailureIsAnAnnotationAtTheDefect) {
  const Scenario scenario = LoraScenario();
  const std::string text = Written("github", OneOfEach(scenario));
  EXPECT_THAT(text, StartsWith("::error file=scenarios/lora/row_flag_missing.textproto,line=14,"
                               "col=3,title=lora/row_flag_missing::2 < 3"));
  EXPECT_THAT(text, HasSubstr("%0A"));
  EXPECT_THAT(text, HasSubstr("::notice file=scenarios/gdn/upstream.textproto,line=1,col=1,"
                              "title=gdn/upstream::no GPU\n"));
  EXPECT_THAT(text, HasSubstr("sumonce: 1 passed, 2 failed, 1 skipped\n"));
}

}  // namespace
}  // namespace sumonce
