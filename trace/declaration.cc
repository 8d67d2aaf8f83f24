#include "trace/declaration.h"

#include "base/status.h"

namespace sumonce::trace {

void DeclarationTable::Add(std::string_view name, Declared declared) {
  const bool added = declared_.emplace(std::string(name), std::move(declared)).second;
  SUMONCE_CHECK(added) << "operation " << name << " is declared twice";
}

Rule Local(LocalDeclaration declaration) {
  return [declare = std::move(declaration)](const Call& call) {
    std::vector<Value> values;
    for (const LocalRule& local : declare(call)) values.push_back(Evaluate(call, local));
    return values;
  };
}

void DeclarationTable::AddLocal(std::string_view name, std::string_view form,
                                LocalDeclaration declaration, uint32_t may_vary) {
  Add(name, {.rule = Local(declaration),
             .form = form,
             .may_vary = may_vary,
             .local = std::move(declaration)});
}

void DeclarationTable::AddLocal(std::initializer_list<std::string_view> names,
                                std::string_view form, const LocalDeclaration& declaration) {
  for (const std::string_view name : names) AddLocal(name, form, declaration);
}

void DeclarationTable::AddViews(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    Add(name, {.rule = nullptr, .form = "t", .may_vary = ~0u});
}

const Declared* DeclarationTable::Find(std::string_view name) const {
  const auto found = declared_.find(name);
  return found == declared_.end() ? nullptr : &found->second;
}

std::string_view BaseName(std::string_view operation) {
  const size_t space = operation.find('.');
  if (space != std::string_view::npos) operation.remove_prefix(space + 1);
  operation = operation.substr(0, operation.find('.'));
  if (operation.ends_with('_')) operation.remove_suffix(1);
  return operation;
}

const DeclarationTable& Declarations() {
  static const auto& table = *[] {
    auto* filled = new DeclarationTable;
    RegisterAllDeclarations(*filled);
    return filled;
  }();
  return table;
}

}  // namespace sumonce::trace
