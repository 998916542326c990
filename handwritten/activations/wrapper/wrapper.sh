# Becomes Ollama, or lets wrapper.py become vLLM. Ollama's image has no Python, and
# KubeAI gives the Pods of every engine the same command:
#   ["/bin/sh", "<folder of this ConfigMap>/wrapper.sh"]
set -eu
if [ "${MAGICSTICK_ENGINE:-VLLM}" = OLlama ]; then
	if [ "$#" -eq 0 ]; then
		set -- serve
	fi
	exec ollama "$@"
fi
for python in python3 python; do
	if command -v "$python" >/dev/null 2>&1; then
		exec "$python" "${0%/*}/wrapper.py" "$@"
	fi
done
echo "magicstick wrapper: there is no Python in this image to start ${MAGICSTICK_ENGINE:-VLLM} with" >&2
exit 2
