// A validatorUrl would send the document to another host.
SwaggerUIBundle({ url: "openapi.json", dom_id: "#viewer", docExpansion: "none", deepLinking: true, validatorUrl: null });
