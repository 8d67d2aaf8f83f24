# A scenario file that no README.md lists stops the configuration with its name, a listed one that is missing too, and
# a catalogue that agrees passes. Each case is a small tree of its own, checked by a cmake run of its own.
#   cmake -D SOURCE_DIR=... -D WORK_DIR=... -P scenario_catalogue_test.cmake
set(check "cmake_minimum_required(VERSION 3.25)
include(${SOURCE_DIR}/cmake/SumonceScenarios.cmake)
file(GLOB_RECURSE files \${ROOT}/*.textproto)
sumonce_check_catalogue(\${ROOT} FILES \${files})\n")

# expect(<case> <exit status: 0 or 1> <regular expression that the messages must match>)
function(expect case status message)
  execute_process(COMMAND ${CMAKE_COMMAND} -D ROOT=${WORK_DIR}/${case} -P ${WORK_DIR}/check.cmake
                  RESULT_VARIABLE actual_status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT actual_status EQUAL status OR NOT output MATCHES "${message}")
    message(SEND_ERROR "${case}: status ${actual_status}, expected ${status}; '${output}' against '${message}'")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
file(WRITE ${WORK_DIR}/check.cmake "${check}")

file(WRITE ${WORK_DIR}/agrees/lora/a.textproto "")
file(WRITE ${WORK_DIR}/agrees/lora/b.textproto "")
file(WRITE ${WORK_DIR}/agrees/README.md "- `lora/a.textproto`: by its path.\n")
file(WRITE ${WORK_DIR}/agrees/lora/README.md "- [b](b.textproto): by its name, in its area.\n")
expect(agrees 0 "^$")

file(WRITE ${WORK_DIR}/unlisted/gdn/x.textproto "")
file(WRITE ${WORK_DIR}/unlisted/gdn/x_more.textproto "")
file(WRITE ${WORK_DIR}/unlisted/README.md "- `scenarios/gdn/x_more.textproto`\n")
expect(unlisted 1 "scenarios/gdn/x.textproto: in no catalogue; list it in scenarios/gdn/README.md")

file(WRITE ${WORK_DIR}/missing/README.md "- `dp/gone.textproto`\n")
expect(missing 1 "scenarios/dp/gone.textproto: a README.md lists it")
